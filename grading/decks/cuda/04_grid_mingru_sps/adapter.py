"""Calls a submission to cuda/04_grid_mingru_sps through ``policy_forward``, or its model, and ``run``."""

import solution
from torch import Tensor

from grading.worker.adapted import Adapted


class Model(Adapted):
    """What the deck checks, the policy alone, and what it times, the games from a seed, in one answer."""

    def __init__(self, num_envs: int, horizon: int) -> None:
        super().__init__(solution.Model)
        self.sizes = (num_envs, horizon)

    def forward(self, obs: Tensor, state: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
        if hasattr(solution, "policy_forward"):
            policy = solution.policy_forward(self.inner, obs, state)
        else:
            policy = self.inner(obs, state)
        games = solution.run(*self.sizes, int(seed), model=self.inner)
        return (*policy, games["rewards"], games["positions"], games["last_logits"])
