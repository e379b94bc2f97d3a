# expect: incorrect
"""Plays but never improves the policy."""

import torch
from torch import Tensor, nn

ENVS, STEPS, SIDE, WIDTH = 4096, 32, 11, 64
GAMMA, LAMBDA = 0.99, 0.95


class Model(nn.Module):
    def __init__(self, total_env_steps: int, envs: int = ENVS) -> None:
        super().__init__()
        self.envs, self.iterations = envs, max(1, total_env_steps // (STEPS * envs))

    def forward(self, seed: Tensor, start: Tensor) -> Tensor:
        generator = torch.Generator(device=start.device).manual_seed(int(seed))
        policy = Policy(start)
        curve = []
        for _ in range(self.iterations):
            _, reward = roll_out(policy, self.envs, generator)
            curve.append(reward)
        return torch.tensor(curve, dtype=torch.float32, device=start.device)


class Policy(nn.Module):
    def __init__(self, start: Tensor) -> None:
        super().__init__()
        body, body_bias, heads, heads_bias = start.split((4 * WIDTH, WIDTH, 5 * WIDTH, 5))
        self.body, self.body_bias = nn.Parameter(body.view(WIDTH, 4).clone()), nn.Parameter(body_bias.clone())
        self.heads, self.heads_bias = nn.Parameter(heads.view(5, WIDTH).clone()), nn.Parameter(heads_bias.clone())

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.tanh(obs @ self.body.T + self.body_bias) @ self.heads.T + self.heads_bias
        return out[..., :4], out[..., 4]


def roll_out(policy: Policy, count: int, generator: torch.Generator) -> tuple[tuple[Tensor, ...], float]:
    device = generator.device

    def draw(*sizes: int) -> Tensor:
        return torch.randint(SIDE, sizes, generator=generator, device=device)

    agent, food = draw(count, 2), draw(count, 2)
    moves = torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]], device=device)
    rows = []
    with torch.no_grad():
        for _ in range(STEPS):
            obs = torch.cat(((food - agent) / SIDE, agent / (SIDE - 1)), dim=1)
            logits, value = policy(obs)
            action = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
            agent = (agent + moves[action]).clamp(0, SIDE - 1)
            hit = (agent == food).all(dim=1)
            food = torch.where(hit[:, None], draw(count, 2), food)
            rows.append((obs, action, logits.log_softmax(1).gather(1, action[:, None])[:, 0], value, hit.float()))
    obs, action, log_prob, value, reward = (torch.stack(column) for column in zip(*rows, strict=True))
    advantage = advantages(reward, value)
    returns = advantage + value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    batch = tuple(part.flatten(0, 1) for part in (obs, action, log_prob, advantage, returns))
    return batch, float(reward.sum(0).mean())


def advantages(reward: Tensor, value: Tensor) -> Tensor:
    result, after = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in range(STEPS - 1, -1, -1):
        is_inner = 1.0 if t < STEPS - 1 else 0.0
        following = value[t + 1] if t < STEPS - 1 else torch.zeros_like(after)
        after = reward[t] + GAMMA * following * is_inner - value[t] + GAMMA * LAMBDA * is_inner * after
        result[t] = after
    return result
