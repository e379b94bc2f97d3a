"""Intake: what a bundle may hold, and what is said about it before anything runs."""

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from grading.evidence import Intake
from grading.problem import Problem
from grading.source.forbidden import find_forbidden

MAX_FILES = 200
MAX_BYTES = 16 * 1024 * 1024
SOLUTION = "solution.py"
_SUFFIXES = (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx", ".txt", ".md")
_OWN_NAMES = frozenset(
    ("reference.py", "shapes.py", "check.py", "benchmark.py", "sota.py", "baseline.py", "problem.yaml", "problem.toml")
)
_SHADOWS = frozenset(
    (
        "sitecustomize.py",
        "usercustomize.py",
        "conftest.py",
        "torch.py",
        "triton.py",
        "numpy.py",
        "yaml.py",
        "grading.py",
    )
)


def take_in(problem: Problem, bundle: Mapping[str, bytes], *, is_exempt: bool) -> Intake:
    """Return the digest of a bundle, why it is refused, and the parsed uses of what its deck forbids.

    is_exempt  our own baselines, which may use what submissions may not
    """
    refused = [f"{path}: {reason}" for path, data in sorted(bundle.items()) if (reason := _fault(path, data))]
    if SOLUTION not in bundle:
        refused.append(f"bundle lacks {SOLUTION}")
    if len(bundle) > MAX_FILES or sum(len(data) for data in bundle.values()) > MAX_BYTES:
        refused.append(f"bundle holds more than {MAX_FILES} files or {MAX_BYTES} bytes")
    hits = [] if is_exempt or refused else find_forbidden(bundle, problem.rules)
    lines = [f"{hit.name} ({hit.file}:{hit.line})" for hit in hits if not hit.is_fallback]
    return Intake(
        digest=bundle_digest(bundle), files=sorted(bundle), refused=refused, forbidden=lines[:50], is_exempt=is_exempt
    )


def bundle_digest(bundle: Mapping[str, bytes]) -> str:
    """Return the SHA-256 hex digest of a bundle: its files' paths and digests, in order of path."""
    lines = (f"{path}\0{hashlib.sha256(bundle[path]).hexdigest()}\n" for path in sorted(bundle))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _fault(path: str, data: bytes) -> str | None:
    """Return why a file cannot be part of a bundle, or None."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or not path.isprintable() or len(path) > 200:
        return "a path that leads outside, or is not printable"
    name = parts[-1]
    if name in _OWN_NAMES or (len(parts) == 1 and name in _SHADOWS) or any(part == "__pycache__" for part in parts):
        return "a name that belongs to the grader or shadows a module"
    if name.startswith(".") or not name.endswith(_SUFFIXES):
        return f"not a source file; accepted are {', '.join(_SUFFIXES)}"
    if path.endswith(".py") and data.startswith((b"\x00", b"\xa7\r", b"\xcb\r", b"PK")):
        return "bytecode or an archive under a source's name"
    return None
