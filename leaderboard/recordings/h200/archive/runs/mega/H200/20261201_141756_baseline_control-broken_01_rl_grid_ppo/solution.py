# expect: incorrect
"""Trains for a quarter of the iterations and repeats the last return."""

import torch
from torch import Tensor, nn

ENVS, STEPS, SIDE, WIDTH = 4096, 32, 11, 64
EPOCHS, MINIBATCHES, GAMMA, LAMBDA = 4, 4, 0.99, 0.95
CLIP, VALUE_SHARE, ENTROPY_SHARE, MOST_NORM, RATE = 0.2, 0.5, 0.01, 0.5, 3e-3


class Model(nn.Module):
    def __init__(self, total_env_steps: int, envs: int = ENVS) -> None:
        super().__init__()
        self.envs, self.iterations = envs, max(1, total_env_steps // (STEPS * envs))

    def forward(self, seed: Tensor, start: Tensor) -> Tensor:
        generator = torch.Generator(device=start.device).manual_seed(int(seed))
        policy = Policy(start)
        optimiser = torch.optim.Adam(policy.parameters(), lr=RATE)
        curve = []
        for _ in range(max(1, self.iterations // 4)):
            batch, reward = roll_out(policy, self.envs, generator)
            with torch.enable_grad():
                improve(policy, optimiser, batch, generator)
            curve.append(reward)
        curve += curve[-1:] * (self.iterations - len(curve))
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


def improve(
    policy: Policy, optimiser: torch.optim.Optimizer, batch: tuple[Tensor, ...], generator: torch.Generator
) -> None:
    size = batch[0].shape[0]
    for _ in range(EPOCHS):
        order = torch.randperm(size, generator=generator, device=generator.device)
        for chosen in order.chunk(MINIBATCHES):
            obs, action, log_prob, advantage, returns = (part[chosen] for part in batch)
            logits, value = policy(obs)
            logs = logits.log_softmax(1)
            ratio = (logs.gather(1, action[:, None])[:, 0] - log_prob).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            entropy = -(logs.exp() * logs).sum(1).mean()
            loss = -gain + VALUE_SHARE * (value - returns).square().mean() - ENTROPY_SHARE * entropy
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MOST_NORM)
            optimiser.step()
