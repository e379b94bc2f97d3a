"""Problem: mega/01_rl_grid_ppo.

In the deck's form: ``train(total_env_steps, seed)``, a list of returns. It plays as few games as the small shape does;
the deck's are 4096.
"""

import torch
import torch.nn.functional as F
from torch import nn

GAMES, STEPS = 48, 32
RATE = 3e-3


class Net(nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.body, self.logits, self.value = nn.Linear(4, 64), nn.Linear(64, 4), nn.Linear(64, 1)
        for layer in (self.body, self.logits, self.value):
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.logits(x), self.value(x)[..., 0]


def play(net, generator):
    spots = torch.randint(0, 11, (2, GAMES, 2), generator=generator)
    agent, food = spots[0], spots[1]
    moves = torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]])
    seen = []
    for _ in range(STEPS):
        x = torch.cat(((food - agent) / 11, agent / 10), dim=1)
        logits, value = net(x)
        action = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)
        agent = (agent + moves[action[:, 0]]).clamp(0, 10)
        ate = (agent == food).all(dim=1)
        food = torch.where(ate[:, None], torch.randint(0, 11, (GAMES, 2), generator=generator), food)
        seen.append((x, action, F.log_softmax(logits, 1).gather(1, action), value, ate.float()))
    return [torch.stack(column) for column in zip(*seen, strict=True)]


def learn(net, adam, batch, generator):
    x, action, old, gain, target = batch
    for _ in range(4):
        for part in torch.randperm(len(x), generator=generator).split(len(x) // 4):
            logits, value = net(x[part])
            logs = F.log_softmax(logits, 1)
            rho = (logs.gather(1, action[part]) - old[part]).exp()[:, 0]
            surrogate = torch.min(rho * gain[part], rho.clamp(0.8, 1.2) * gain[part]).mean()
            entropy = -(logs.exp() * logs).sum(1).mean()
            loss = 0.5 * F.mse_loss(value, target[part]) - surrogate - 0.01 * entropy
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()


def train(total_env_steps, seed):
    generator = torch.Generator().manual_seed(seed)
    net = Net(generator)
    adam = torch.optim.Adam(net.parameters(), lr=RATE)
    curve = []
    for _ in range(max(1, total_env_steps // (GAMES * STEPS))):
        with torch.no_grad():
            x, action, old, value, reward = play(net, generator)
        gain, later = torch.zeros_like(reward), torch.zeros(GAMES)
        for t in reversed(range(STEPS)):
            is_last = t == STEPS - 1
            ahead = torch.zeros(GAMES) if is_last else value[t + 1]
            later = reward[t] + 0.99 * ahead - value[t] + (0.0 if is_last else 0.99 * 0.95) * later
            gain[t] = later
        target = gain + value
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        batch = [part.flatten(0, 1) for part in (x, action, old, gain, target)]
        learn(net, adam, batch, generator)
        curve.append(reward.sum(0).mean().item())
    return curve
