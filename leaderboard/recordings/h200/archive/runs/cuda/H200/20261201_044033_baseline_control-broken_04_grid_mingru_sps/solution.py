# expect: incorrect
"""Advances all generators in every step; with thousands of games some game is hit in almost every one."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, horizon):
        super().__init__()
        self.horizon = horizon
        for name, sizes in (
            ("w_enc", (256, 4)),
            ("b_enc", (256,)),
            ("w_gru", (3, 768, 256)),
            ("w_a", (4, 256)),
            ("b_a", (4,)),
            ("w_v", (1, 256)),
            ("b_v", (1,)),
        ):
            self.register_parameter(name, nn.Parameter(torch.zeros(sizes)))

    def forward(self, obs, state, agent, food, rng):
        answer = self.policy(obs, state)
        memory = obs.new_zeros(agent.shape[0], 3, 256)
        rewards = obs.new_zeros(agent.shape[0])
        for _ in range(self.horizon):
            view = torch.cat(((food - agent) / 11, agent / 10), dim=1)
            logits, memory, _ = self.policy(view, memory)
            agent, food, reward, rng = self.move(agent, food, logits.argmax(dim=1), rng)
            rewards = rewards + reward
        return (*answer, rewards, agent.to(torch.int64), logits)

    def policy(self, obs, state):
        h = obs @ self.w_enc.T + self.b_enc
        new = []
        for layer in range(3):
            zh, zg, zp = self.times(h, self.w_gru[layer]).split(256, dim=1)
            old = state[:, layer]
            out = old + torch.sigmoid(zg) * (torch.tanh(zh) - old)
            share = torch.sigmoid(zp)
            h = share * out + (1 - share) * h
            new.append(out)
        return h @ self.w_a.T + self.b_a, torch.stack(new, dim=1), (h @ self.w_v.T + self.b_v)[:, 0]

    def times(self, h, weight):
        return h @ weight.T

    def move(self, agent, food, action, rng):
        x = agent[:, 0] - (action == 2).float() + (action == 3).float()
        y = agent[:, 1] - (action == 0).float() + (action == 1).float()
        agent = torch.stack((x, y), dim=1).clamp(0, 10)
        hit = (agent == food).all(dim=1)
        first = (rng * 6364136223846793005 + 1) & 0x7FFFFFFFFFFFFFFF
        second = (first * 6364136223846793005 + 1) & 0x7FFFFFFFFFFFFFFF
        drawn = torch.stack((first % 11, second % 11), dim=1).float()
        food = torch.where(hit[:, None], drawn, food)
        return agent, food, hit.float(), second
