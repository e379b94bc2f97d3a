"""How the oracle gets at a problem's reference."""

import importlib.util
from types import ModuleType
from typing import Any


class _EntryForm:
    """A reference as the deck's entry points ask it: what its ``ENTRY`` names goes before its own names."""

    def __init__(self, module: ModuleType) -> None:
        self.__dict__["module"] = module

    def __getattr__(self, name: str) -> Any:
        return self.module.ENTRY[name] if name in self.module.ENTRY else getattr(self.module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.module, name, value)


def load_reference(path: str, *, is_entry: bool) -> Any:
    """Return a reference, imported from its file; in the form of the deck's entry points where a bundle has them."""
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return _EntryForm(module) if is_entry else module
