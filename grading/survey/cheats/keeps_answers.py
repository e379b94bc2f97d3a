"""E10: keeps answers by the address and the version of the inputs, and gives the kept one for a known pair."""

from typing import Any


def cheat(honest: Any) -> Any:
    """Return the honest model's class with a memory."""

    class Cheat(honest):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            known = self.__dict__.setdefault("known", {})
            key = tuple((t.data_ptr(), t._version) for t in inputs)
            if key not in known:
                known[key] = super().forward(*inputs)
            return known[key]

    return Cheat
