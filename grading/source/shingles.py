"""How much two sources share: digests of their form, and sketches of their 3-line shingles.

A shingle is three consecutive lines of code without comments, docstrings, blank lines and layout. A sketch keeps the
smallest 64-bit hashes of a source's shingles (all of them in most files), so that the share of one source that another
one holds is read off two sketches without the sources.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache

import msgspec

from grading.problem import DECKS
from grading.source.files import C_ENDS, c_files, python_files, text_of

WIDTH = 3
MAX_HASHES = 400
_MIN_TOKENS = 120
_ALL = 2**64
_POSTING_STEP = 4
_C_COMMENT = re.compile(r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)")
_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*+)"
    r"|(?P<long>[rRbBfFuU]{0,2}(?:\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\"|\Z)|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)))"
    r"|(?P<short>[rRbBfFuU]{0,2}(?:\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?))",
    re.DOTALL,
)
_CODE_WORDS = re.compile(r"__global__|#include|__device__|\basm\b")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9][0-9A-Za-z_.]*|[^\s]")
_KEPT = frozenset(
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda nonlocal not or pass raise return try while with yield None True False self torch tl triton float int "
    "const void auto half bfloat16 __global__ __device__ __shared__ threadIdx blockIdx blockDim gridDim".split()
)


class Sketch(msgspec.Struct, frozen=True, array_like=True):
    """The smallest hashes of a source's shingles, ascending; every shingle below ``limit`` is among them."""

    hashes: tuple[int, ...]
    limit: int

    def probes(self) -> Iterator[int]:
        """Yield the hashes to look up in an index that holds postings."""
        return (value for value in self.hashes if value % _POSTING_STEP == 0)

    def postings(self) -> Iterator[int]:
        """Yield the hashes to index: every fourth, and fewer where a source is long."""
        step = _POSTING_STEP if len(self.hashes) <= 128 else _POSTING_STEP * 4
        return (value for value in self.hashes if value % step == 0)


def source_digests(files: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """Return the digest of a run's sources and of their form, None where there are none or they are too short.

    The form has no comments, docstrings or layout, and its own names are numbered in order of appearance: a copy with
    other names has the same form.
    """
    parts = [*python_files(files), *c_files(files)]
    if not parts:
        return None, None
    exact = hashlib.sha256()
    for _, data in parts:
        exact.update(hashlib.sha256(data).digest())
    words = [word for path, data in parts for word in _words(data, path.lower().endswith(C_ENDS))]
    if len(words) < _MIN_TOKENS:
        return exact.hexdigest(), None
    return exact.hexdigest(), hashlib.sha256(" ".join(_renamed(words)).encode("utf-8", "replace")).hexdigest()


def sketch_source(files: Mapping[str, bytes], boilerplate: frozenset[int] = frozenset()) -> Sketch | None:
    """Return the sketch of a run's sources without the shingles of the deck's own files."""
    hashes: set[int] = set()
    for path, data in (*python_files(files), *c_files(files)):
        hashes.update(_hashes(data, path.lower().endswith(C_ENDS)))
    kept = sorted(hashes - boilerplate)
    if not kept:
        return None
    return Sketch(tuple(kept[:MAX_HASHES]), kept[MAX_HASHES] if len(kept) > MAX_HASHES else _ALL)


def shared_share(run: Sketch | None, other: Sketch | None) -> float:
    """Return the share of a run's shingles that another source holds, 0.0 where either has none."""
    if run is None or other is None:
        return 0.0
    limit = min(run.limit, other.limit)
    own = {value for value in run.hashes if value < limit}
    return len(own.intersection(other.hashes)) / len(own) if own else 0.0


@cache
def deck_shingles(deck: str, problem: str) -> frozenset[int]:
    """Return the shingles of a problem's own reference: what every solution may share."""
    path = DECKS / deck / problem / "reference.py"
    return frozenset(_hashes(path.read_bytes(), False)) if path.is_file() else frozenset()


@cache
def reference_sketch(deck: str, problem: str) -> Sketch | None:
    """Return the sketch of a problem's reference, None where the deck has none."""
    kept = sorted(deck_shingles(deck, problem))
    return Sketch(tuple(kept), _ALL) if kept else None


@lru_cache(maxsize=2048)
def _hashes(data: bytes, is_c: bool) -> tuple[int, ...]:
    lines = [line for line in (" ".join(_WORD.findall(text)) for text in _code(data, is_c).split("\n")) if line]
    windows = ("\n".join(lines[index : index + WIDTH]) for index in range(len(lines) - WIDTH + 1))
    return tuple(sorted({_hash(window) for window in windows}))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def _code(data: bytes, is_c: bool) -> str:
    """Return a source without comments; of a Python text's long strings only CUDA source stays."""
    text = text_of(data)
    if is_c:
        return _C_COMMENT.sub(" ", text)
    return _PYTHON.sub(_kept_string, text)


def _kept_string(match: "re.Match[str]") -> str:
    if match["comment"] is not None:
        return ""
    if match["long"] is not None:
        return _C_COMMENT.sub(" ", match["long"]) if _CODE_WORDS.search(match["long"]) else '""'
    return match.group()


@lru_cache(maxsize=512)
def _words(data: bytes, is_c: bool) -> tuple[str, ...]:
    return tuple(_WORD.findall(_code(data, is_c)))


def _renamed(words: Iterable[str]) -> Iterator[str]:
    """Yield words with every free name numbered; what follows a dot, keywords and usual names stay."""
    numbers: dict[str, str] = {}
    before = ""
    for word in words:
        is_free = word[0].isalpha() or word[0] == "_"
        yield numbers.setdefault(word, f"v{len(numbers)}") if is_free and before != "." and word not in _KEPT else word
        before = word
