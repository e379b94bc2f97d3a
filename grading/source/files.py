"""Which files of a run are source, and in which language."""

from collections.abc import Iterator, Mapping

MAX_SOURCE_BYTES = 2 * 1024 * 1024
PYTHON_ENDS = (".py",)
C_ENDS = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hxx", ".inl")
_SOURCE_FOLDERS = ("scratch/", "ws/")
_DECK_FILES = frozenset(
    {"check.py", "benchmark.py", "reference.py", "baseline.py", "sota.py", "shapes.py", "anchor.py"}
)


def is_source(path: str) -> bool:
    """Tell whether a file of a run directory is source of the solution: beside it, or in its folder of sidecars.

    The deck's own files, which some archives keep beside it, are not.
    """
    name = path.rpartition("/")[2].lower()
    if not name.endswith(PYTHON_ENDS + C_ENDS) or name in _DECK_FILES:
        return False
    return "/" not in path or path.startswith(_SOURCE_FOLDERS)


def python_files(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield Python sources by path, outer ones first, up to `MAX_SOURCE_BYTES` together."""
    return _of(files, PYTHON_ENDS)


def c_files(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield C, C++ and CUDA sources by path, outer ones first, up to `MAX_SOURCE_BYTES` together."""
    return _of(files, C_ENDS)


def _of(files: Mapping[str, bytes], ends: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    left = MAX_SOURCE_BYTES
    for path in sorted(files, key=lambda path: (path.count("/"), path)):
        if is_source(path) and path.lower().endswith(ends) and len(files[path]) <= left:
            left -= len(files[path])
            yield path, files[path]


def unread_files(files: Mapping[str, bytes]) -> list[str]:
    """Return the sources that are left out because all of one language together exceed the limit."""
    read = {path for path, _ in (*python_files(files), *c_files(files))}
    return [path for path in sorted(files) if is_source(path) and path not in read]


def text_of(data: bytes) -> str:
    """Return a source's text; bytes that are not UTF-8 become the replacement character."""
    return data.decode("utf-8-sig", "replace")
