"""The harnesses that the catalogue knows: the agent programs that drive a model, by the name in their run ids.

Data: grading/catalogue/harnesses.toml.
"""

from functools import cache
from pathlib import Path

import msgspec

from grading.tomldata import load_table

_PATH = Path(__file__).parent / "catalogue" / "harnesses.toml"


class _Harnesses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    harnesses: list[str]


@cache
def load_harnesses(path: Path = _PATH) -> frozenset[str]:
    """Return the names of all known harnesses. Raises CatalogueError for a file that does not read."""
    return frozenset(load_table(path, _Harnesses).harnesses)
