"""Rules on the source: what the deck forbids, what is missing, and what its labels claim.

Parsed code only: a name in a comment or a string is no use of it.

Source: docs/method.md "Findings".
"""

from collections.abc import Iterator

import msgspec

from grading.integrity.base import Context, Statement, lead, rule
from grading.integrity.twins import is_baseline
from grading.source.facts import read_python
from grading.source.files import MAX_SOURCE_BYTES, c_files, is_source, python_files, unread_files
from grading.source.forbidden import Hit, find_forbidden, has_kernel, imports_of

_FAST_BYTES, _FAST_SECONDS = 30_000, 360


@rule("source.unparsable", "The source cannot be parsed", "warn")
def check_unparsable(context: Context) -> Iterator[Statement]:
    """A file of the solution is no valid Python or too long, so that no rule on parsed code can judge it.

    Example: an unclosed bracket. A run that passed its check with such a file was not graded from it.
    """
    for path, data in python_files(context.files):
        facts = read_python(data)
        if facts.error is not None:
            yield Statement(f"{path} does not parse: {facts.error}.", path, facts.error_line)
    for path in unread_files(context.files)[:8]:
        yield Statement(f"{path} is beyond the {MAX_SOURCE_BYTES} bytes of source that are read.", path)


@rule("source.forbidden_call", "The source uses what the problem forbids", "block")
def check_forbidden_call(context: Context) -> Iterator[Statement]:
    """A call or an import of the problem's published list, found in parsed code.

    Followed are import aliases, attribute chains, assigned names, assembled texts in getattr and importlib, torch's
    other spellings of the same operation, and C++ and CUDA in sidecars and in strings. Names in comments and
    docstrings do not count, nor does a branch that only runs when building an extension failed; that one is a lead.
    Example: ``getattr(torch.nn.functional, "lin" + "ear")(x, w)`` where the product must be written by hand.
    """
    if is_baseline(context):
        return
    for hit in _distinct(hit for hit in find_forbidden(context.files, context.problem.rules) if not hit.is_fallback):
        spelled = "" if hit.name == hit.rule else f", written as {hit.name[:80]}"
        yield Statement(
            f"{hit.file} line {hit.line} uses {hit.rule}{spelled}, which {context.problem.key} forbids.",
            hit.file,
            hit.line,
            {"rule": hit.rule, "name": hit.name[:200]},
        )


def _distinct(hits: Iterator[Hit]) -> Iterator[Hit]:
    """Yield the first use of each name in each file, eight at most."""
    seen: set[tuple[str, str]] = set()
    for hit in hits:
        if (hit.file, hit.rule) not in seen and len(seen) < 8:
            seen.add((hit.file, hit.rule))
            yield hit


@lead("lead.forbidden_fallback", "A forbidden operation stands in a fallback branch")
def check_forbidden_fallback(context: Context) -> Iterator[Statement]:
    """A forbidden call in a branch that only runs when building or loading an extension failed.

    Honest where it never runs at the scored shapes. Example: ``except RuntimeError: return torch.matmul(a, b)``. The
    auditor should see that the extension was built.
    """
    if is_baseline(context):
        return
    for hit in _distinct(hit for hit in find_forbidden(context.files, context.problem.rules) if hit.is_fallback):
        yield Statement(f"{hit.file} line {hit.line} uses {hit.rule} where something failed.", hit.file, hit.line)


@rule("source.missing_file", "A file that the source loads is not in the archive", "block")
def check_missing_file(context: Context) -> Iterator[Statement]:
    """Sources that the solution builds must be archived with it, or nobody can rebuild what was measured.

    Example: ``load(name="k", sources=["kernel.cu"])`` in an archive without kernel.cu. Paths that are computed,
    absolute or written by the solution itself are not judged.
    """
    held = {entry.path for entry in context.record.files}
    for path, data in python_files(context.files):
        for line, name in read_python(data).loaded:
            if not any(item == name or item.endswith(f"/{name.removeprefix('./')}") for item in held):
                yield Statement(
                    f"{path} line {line} builds {name}, which is not in the archive.", path, line, {"missing": name}
                )


@rule("source.label_disagrees", "The language labels do not fit the source", "warn")
def check_label_disagrees(context: Context) -> Iterator[Statement]:
    """framework.txt and cuda_language.json describe the source, so the parsed source must bear them out.

    Example: cuda_language.json claims no Triton and the source imports it, or the label says cuda_raw and no sidecar or
    string holds a kernel. The label is taken from the first pattern that matches, so a second language beside it is
    no contradiction.
    """
    if not any(is_source(path) for path in context.files):
        return
    imports = imports_of(context.files)
    label = context.record.framework
    for word in (label or "").split("+"):
        if not _is_borne_out(word, imports, context):
            yield Statement(f"The label says {word}; nothing in the parsed source bears it out.", "framework.txt")
    yield from _language_sidecar(context, imports)


def _is_borne_out(word: str, imports: frozenset[str], context: Context) -> bool:
    if word == "triton":
        return "triton" in imports
    if word in ("cuda_raw", "cuda_wmma"):
        return has_kernel(context.files)
    if word in ("pytorch_only", "eager"):
        return "triton" not in imports and not has_kernel(context.files)
    return True


def _language_sidecar(context: Context, imports: frozenset[str]) -> Iterator[Statement]:
    for path in ("cuda_language.json", "scratch/cuda_language.json"):
        try:
            said = msgspec.json.decode(context.files.get(path, b"{}"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield Statement(f"{path} is no JSON object.", path)
            continue
        if not isinstance(said, dict):
            continue
        if said.get("triton_cheat") is False and "triton" in imports and context.problem.rules.language == "cuda":
            yield Statement(f"{path} says that no Triton is used; the parsed source imports it.", path)
        if said.get("has_cuda_evidence") is True and not has_kernel(context.files):
            yield Statement(f"{path} says that CUDA is used; no sidecar or string holds a kernel.", path)


@lead("lead.written_fast", "A long source came out of a short session")
def check_written_fast(context: Context) -> Iterator[Statement]:
    """Thirty kilobytes of kernel in under six minutes are rarely written in that session.

    Example: a 40 kB source after 331 seconds. Only a reason to read the comparison with earlier sources first.
    """
    size = sum(len(data) for _, data in (*python_files(context.files), *c_files(context.files)))
    seconds = context.record.elapsed_seconds
    if seconds is not None and 0 <= seconds < _FAST_SECONDS and size >= _FAST_BYTES and not is_baseline(context):
        yield Statement(
            f"{size} bytes of source after a session of {seconds} seconds.",
            "solution.py",
            data={"size_bytes": size, "elapsed_seconds": seconds},
        )
