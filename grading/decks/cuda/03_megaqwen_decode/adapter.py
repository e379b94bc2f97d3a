"""Calls a submission to cuda/03_megaqwen_decode through ``prefill`` and ``decode_steps``, else through ``run``.

The deck times ``decode_steps`` alone, so that is what answers where there is one.
"""

import solution
from torch import Tensor

from grading.worker.adapted import Adapted


class Model(Adapted):
    """A prefill and the steps after it, from a seed."""

    def __init__(self, num_layers: int, max_seq: int, ctx_len: int, decode_steps: int) -> None:
        super().__init__(lambda: solution.Model(num_layers, max_seq))
        self.parts = (ctx_len, decode_steps)

    def forward(self, seed: Tensor) -> Tensor:
        ctx_len, steps = self.parts
        number, model = int(seed), self.inner
        if not (hasattr(solution, "prefill") and hasattr(solution, "decode_steps")):
            return solution.run(ctx_len, steps, number, model=model)["last_hidden"]
        state = solution.prefill(model, ctx_len, number)
        return solution.decode_steps(model, *state, ctx_len, steps, number)[0]
