"""Problem: cuda/04_grid_mingru_sps.

In the deck's form: ``Model()`` with the policy as its ``forward``, ``policy_forward``, ``env_step`` and ``run``.
"""

import torch
from torch import nn

MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        sizes = {
            "w_enc": (256, 4),
            "b_enc": (256,),
            "w_gru": (3, 768, 256),
            "w_a": (4, 256),
            "b_a": (4,),
            "w_v": (1, 256),
            "b_v": (1,),
        }
        for name, size in sizes.items():
            setattr(self, name, nn.Parameter(torch.empty(size).normal_(0.0, 0.02, generator=generator)))

    def forward(self, obs, state):
        h = obs @ self.w_enc.T + self.b_enc
        kept = []
        for layer in range(3):
            z = h @ self.w_gru[layer].T
            old = state[:, layer]
            new = old + torch.sigmoid(z[:, 256:512]) * (torch.tanh(z[:, :256]) - old)
            p = torch.sigmoid(z[:, 512:])
            h = p * new + (1 - p) * h
            kept.append(new)
        return h @ self.w_a.T + self.b_a, torch.stack(kept, 1), (h @ self.w_v.T + self.b_v).squeeze(1)


def policy_forward(model, obs, state):
    return model(obs, state)


def lcg(rng):
    return (rng * 6364136223846793005 + 1) & 0x7FFFFFFFFFFFFFFF


def env_step(agent, food, actions, rng_state):
    agent = (agent + torch.tensor(MOVES, dtype=agent.dtype, device=agent.device)[actions]).clamp(0, 10)
    hit = (agent == food).all(1)
    first = lcg(rng_state)
    second = lcg(first)
    moved = hit.any()
    food = torch.where(hit[:, None], torch.stack((first % 11, second % 11), 1).to(food.dtype), food)
    return agent, food, hit.to(torch.float32), torch.where(moved, second, rng_state)


@torch.no_grad()
def run(num_envs, horizon, seed, model=None):
    model = Model() if model is None else model
    device = model.w_enc.device
    generator = torch.Generator(device="cpu").manual_seed(seed)
    agent = torch.randint(0, 11, (num_envs, 2), generator=generator).float().to(device)
    food = torch.randint(0, 11, (num_envs, 2), generator=generator).float().to(device)
    rng = torch.arange(num_envs, dtype=torch.int64, device=device) + seed * 10007
    state = torch.zeros(num_envs, 3, 256, device=device)
    rewards = torch.zeros(num_envs, device=device)
    for _ in range(horizon):
        obs = torch.cat(((food - agent) / 11, agent / 10), 1)
        logits, state, _ = policy_forward(model, obs, state)
        agent, food, reward, rng = env_step(agent, food, logits.argmax(1), rng)
        rewards += reward
    return {"rewards": rewards, "positions": agent.long(), "last_logits": logits, "state": state}
