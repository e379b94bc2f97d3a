"""Reference of the retired mega/01_rl_grid_ppo: train a small policy with PPO and return its learning curve.

Written from the specification; kept so that archived runs can be graded again. The grader assigns ``total_env_steps``
before it calls the functions below. The deck's ``train(total_env_steps, seed)`` enters as a model without weights:

seed    (1,) int64, what every random stream starts from; how is free, so two right answers agree only in distribution
start   (645,) fp32, the policy's first weights in one row: body (64, 4), bias (64,), heads (5, 64), bias (5,);
        the deck's are uniform within 1/sqrt(inputs), with zero biases
answer  the curve (iterations,) fp32: mean summed reward of an episode of 32 steps

Through the deck's entry point (``ENTRY``) a call is given the seed alone, and first weights follow from it too.
"""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

total_env_steps = 5242880
ENVS, STEPS, SIDE, WIDTH = 4096, 32, 11, 64
ITERATION = ENVS * STEPS
EPOCHS, MINIBATCHES, GAMMA, LAMBDA = 4, 4, 0.99, 0.95
CLIP, VALUE_SHARE, ENTROPY_SHARE, MOST_NORM, RATE = 0.2, 0.5, 0.01, 0.5, 3e-3
LOW, HIGH, IMPROVEMENT = 0.70, 1.40, 0.5
STRUCTURAL_SHAPE = 0
STRUCTURAL_TOLERANCE = (0.0, 0.0)
envs = ENVS


class Model(nn.Module):
    """No weights: training starts from those it is given."""

    def __init__(self, total_env_steps: int, envs: int = ENVS) -> None:
        super().__init__()
        self.envs, self.iterations = envs, max(1, total_env_steps // (STEPS * envs))

    def forward(self, seed: Tensor, start: Tensor) -> Tensor:
        generator = torch.Generator(device=start.device).manual_seed(int(seed))
        policy = Policy(start)
        optimiser = torch.optim.Adam(policy.parameters(), lr=RATE)
        curve = []
        for _ in range(self.iterations):
            batch, reward = roll_out(policy, self.envs, generator)
            with torch.enable_grad():
                improve(policy, optimiser, batch, generator)
            curve.append(reward)
        return torch.tensor(curve, dtype=torch.float32, device=start.device)


class SeededModel(Model):
    """The deck's ``train``: the first weights are the submission's own draw."""

    def forward(self, seed: Tensor) -> Tensor:
        start = draw_start(torch.Generator().manual_seed(int(seed)))
        return super().forward(seed, start.to(seed.device))


class Policy(nn.Module):
    """A tanh layer, four logits and a value."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        body, body_bias, heads, heads_bias = start.split((4 * WIDTH, WIDTH, 5 * WIDTH, 5))
        self.body, self.body_bias = nn.Parameter(body.view(WIDTH, 4).clone()), nn.Parameter(body_bias.clone())
        self.heads, self.heads_bias = nn.Parameter(heads.view(5, WIDTH).clone()), nn.Parameter(heads_bias.clone())

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.tanh(obs @ self.body.T + self.body_bias) @ self.heads.T + self.heads_bias
        return out[..., :4], out[..., 4]


def roll_out(policy: Policy, count: int, generator: torch.Generator) -> tuple[tuple[Tensor, ...], float]:
    """Return 32 steps of all games, flattened: observations, actions, their log probabilities, advantages, returns."""
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
    """Return generalised advantages; nothing follows the last step."""
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
    """Take four epochs of four minibatches."""
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


def get_init_inputs() -> list[int]:
    """Return the constructor's arguments."""
    return [total_env_steps, envs]


def get_inputs() -> list[Tensor]:
    """Draw a seed and first weights."""
    seed = torch.randint(1 << 31, (1,))
    return [seed, draw_start(torch.Generator().manual_seed(int(seed)))]


def draw_start(generator: torch.Generator) -> Tensor:
    """Return first weights in one row, on the processor."""
    body, heads = (
        torch.empty(size, device="cpu").uniform_(-bound, bound, generator=generator)
        for size, bound in ((4 * WIDTH, 0.5), (5 * WIDTH, 0.125))
    )
    return torch.cat((body, torch.zeros(WIDTH, device="cpu"), heads, torch.zeros(5, device="cpu")))


def structural_cases(inputs: list[Tensor], rng: random.Random) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield a policy that starts far from the even choice: its curve starts lower, and must still climb."""
    seed, start = inputs
    biased = start.clone()
    # The bias of one move, behind the heads' weights.
    biased[-5 + rng.randrange(4)] = 1.5
    yield "biased_start", [seed, biased]


def compared_parts(inputs: list[Tensor], expected: Tensor, actual: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Judge level and climb, since the random streams are free. A made-up curve passes, the deck's own flaw."""
    if actual.shape != expected.shape or not bool(actual.isfinite().all()):
        raise ValueError(f"the curve has {tuple(actual.shape)} values, or one is not finite; need {expected.numel()}")
    final, wanted, first = (float(part.mean()) for part in (actual[-5:], expected[-5:], actual[:3]))
    climb = float(expected[-5:].mean() - expected[:3].mean())
    if not LOW * wanted <= final <= HIGH * wanted:
        raise ValueError(f"the last returns are {final:.3f}; need {LOW * wanted:.3f} to {HIGH * wanted:.3f}")
    if not final - first >= min(IMPROVEMENT * wanted, 0.7 * climb):
        raise ValueError(f"the curve climbs by {final - first:.3f}; need {min(IMPROVEMENT * wanted, 0.7 * climb):.3f}")
    yield "curve", actual, actual


ENTRY = {
    "Model": SeededModel,
    "get_inputs": lambda: get_inputs()[:1],
    "structural_cases": lambda inputs, rng: iter(()),
}
