"""What a solution is written in, read from its parsed source and never from a label that came with it."""

from collections.abc import Mapping

from grading.source.files import is_source
from grading.source.forbidden import has_kernel, imports_of

FRAMEWORKS_VERSION = "1"
# Every word that a solution can be filed under, in the order in which several are named.
FRAMEWORKS = ("cuda", "cutlass", "triton", "tilelang", "helion", "pytorch")
_IMPORTED = {"triton": "triton", "tilelang": "tilelang", "helion": "helion", "cutlass": "cutlass"}
_IN_C = {"__global__": "cuda", "cutlass": "cutlass", "cute": "cutlass"}


def framework_of(files: Mapping[str, bytes]) -> str | None:
    """Return what a run's source is written in, such as ``cuda``, ``cuda+triton`` or ``pytorch``; None without source.

    files  the run's files by path; only sources are read
    A word stands for what the source imports or builds, whether or not a call ever gets there. ``pytorch`` stands
    alone: it means that nothing else was found.
    """
    if not any(is_source(path) for path in files):
        return None
    found = {word for name, word in _IMPORTED.items() if name in imports_of(files)}
    found |= {word for name, word in _IN_C.items() if has_kernel(files, name)}
    return "+".join(word for word in FRAMEWORKS if word in found) or "pytorch"
