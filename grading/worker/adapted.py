"""What the adapters of problems share: a deck's own model behind our constructor and our strict load.

An adapter is the file ``adapter.py`` beside a problem's reference. It runs in the worker, in place of the bundle's
module, and only passes on: inputs to the deck's entry points, their answers back. It neither compares nor keeps.

Source: docs/grader.md "Entry points".
"""

import importlib.util
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class Adapted(nn.Module):
    """A deck's model; every set of weights gets one of its own, as in the decks, where a model is loaded once."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self._make, self._is_loaded = make, False
        self.inner = make()

    def load_state_dict(self, state_dict: "Mapping[str, Tensor]", strict: bool = True, assign: bool = False) -> Any:
        """Load the weights into the deck's model, into a new one where this one had weights before."""
        if self._is_loaded:
            device = next(self.inner.parameters()).device
            self.inner = None
            self.inner = self._make().to(device).eval()
        self._is_loaded = True
        return self.inner.load_state_dict(state_dict, strict=strict, assign=assign)


def load_adapter(path: str) -> ModuleType:
    """Load a problem's adapter; ``solution`` must have been imported."""
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
