"""E51: works in a stream of its own and returns at once, so that events in the caller's stream time nothing."""

from typing import Any

import torch


def cheat(honest: Any) -> Any:
    """Return the honest model's class that hides its work on a GPU; on a processor there is nowhere to hide it."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            if inputs[0].device.type == "cpu":
                return super().forward(*inputs)
            make_stream: Any = torch.cuda.Stream
            with torch.cuda.stream(self.__dict__.setdefault("stream", make_stream())):
                return super().forward(*inputs)

    return Cheat
