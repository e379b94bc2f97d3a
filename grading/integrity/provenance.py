"""Rules on where a run comes from: problem version, files, registry, usage.

Source: docs/method.md "Findings".
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from grading.evidence import GRADER_METHOD
from grading.hardware import peaks_digest
from grading.integrity.base import Context, Statement, rule

_SHADOWS = frozenset(
    {"sitecustomize.py", "usercustomize.py", "conftest.py", "torch.py", "triton.py", "yaml.py", "numpy.py"}
)
_TOKENS_PER_SECOND = 20_000
_COST_PER_SECOND = 5.0


def environment_of(context: Context) -> Mapping[str, Any]:
    """Return what ``environment.json`` holds, or nothing where there is none that can be read."""
    try:
        table = msgspec.json.decode(context.files.get("environment.json", b"{}"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


@rule("run.other_problem_version", "The run was graded on another version of its problem", "warn")
def check_other_problem_version(context: Context) -> Iterator[Statement]:
    """The archive names the version of the problem that it was graded on, and it is not today's.

    Formulas, shapes or tolerances have changed since; the run must be graded again to be compared. Example: an archive
    from before a tolerance was tightened. Archives that name no version stay silent.
    """
    environment = context.record.environment
    said = environment.problem_version if environment is not None else None
    if said is not None and said != context.problem.version:
        yield Statement(
            f"The archive was graded on version {said[:12]} of {context.problem.key}; today's is "
            f"{context.problem.version[:12]}. Grade it again.",
            "environment.json",
            data={"recorded": said, "current": context.problem.version},
        )


@rule("timing.other_method", "The times were taken by another method than the deck's", "block")
def check_other_method(context: Context) -> Iterator[Statement]:
    """The archive names how its times were taken, and it is not how this deck's are.

    The device alone takes less than a whole call from Python, by half where calls are short.
    Example: the archive of a grade that made no calls as the deck makes them.
    """
    method = environment_of(context).get("method_version")
    if isinstance(method, str) and method.startswith(GRADER_METHOD):
        yield Statement(
            f"The times were taken by {method[:40]}, which times the device alone; the deck times whole calls.",
            "environment.json",
            data={"method": method[:40]},
        )


@rule("run.other_board", "The grader's record names another board", "block")
def check_other_board(context: Context) -> Iterator[Statement]:
    """The archive records the GPU key and the peak table that the grader used; the key must be the board's.

    Example: an archive graded as H100_SXM that is filed under H200. A peak table that was replaced since is told from
    its digest and is no fault: the score is always recomputed with the current one.
    """
    environment = environment_of(context)
    key, digest = environment.get("gpu"), environment.get("peak_digest")
    if isinstance(key, str) and key != context.gpu.key:
        yield Statement(
            f"The grader recorded the GPU key {key[:40]}; this board is {context.gpu.key}.",
            "environment.json",
            data={"recorded": key[:40], "board": context.gpu.key},
        )
    version = context.record.environment.peak_version if context.record.environment is not None else None
    if isinstance(digest, str) and version == context.gpu.current.version and digest != peaks_digest(context.gpu):
        yield Statement(
            f"The grader used other figures under the name of version {version} of the {context.gpu.key} peaks.",
            "environment.json",
            data={"recorded": digest[:64], "current": peaks_digest(context.gpu)},
        )


@rule("source.not_the_graded_one", "The archived source is not the one that was graded", "block", is_waivable=False)
def check_not_the_graded_one(context: Context) -> Iterator[Statement]:
    """The grader records the digest of the source that it ran; the archived file must have it.

    Example: a solution.py that was tidied up after the grade. The number belongs to another file.
    """
    said, data = environment_of(context).get("solution_digest"), context.files.get("solution.py")
    if isinstance(said, str) and data is not None and hashlib.sha256(data).hexdigest() != said:
        yield Statement(
            f"The grader ran a source with the digest {said[:12]}; the archived solution.py has another one.",
            "solution.py",
            data={"graded": said[:64], "archived": hashlib.sha256(data).hexdigest()},
        )


@rule("run.shadowing_file", "A file of the archive could stand in for a trusted module", "warn")
def check_shadowing_file(context: Context) -> Iterator[Statement]:
    """Files that Python loads by itself, or that bear the name of a library, do not belong to a kernel.

    Example: a sitecustomize.py beside the solution. Compiled caches below ``__pycache__`` are written by any
    session and are not meant; a compiled file outside of one is.
    """
    for entry in context.record.files:
        folder, _, name = entry.path.rpartition("/")
        if folder not in ("", "scratch"):
            continue
        is_compiled = name.endswith((".pyc", ".pth")) and not folder.endswith("__pycache__")
        if name in _SHADOWS or is_compiled:
            yield Statement(f"{entry.path} is loaded without being asked for.", entry.path, data={"path": entry.path})


@rule("run.unknown_entrant", "The model or the harness is not in the catalogue", "warn")
def check_unknown_entrant(context: Context) -> Iterator[Statement]:
    """A name that the catalogue does not know may be new, misspelled, or an alias of another model.

    Example: a dated alias of a model that is listed under another string. Add it to the catalogue, or correct it.
    """
    if context.is_known_model is False:
        yield Statement(
            f"The model {context.record.model[:80]!r} is not in the catalogue.",
            "result.json",
            data={"model": context.record.model[:80]},
        )
    if context.is_known_harness is False:
        yield Statement(
            f"The harness {context.record.harness[:80]!r} is not in the catalogue.",
            "result.json",
            data={"harness": context.record.harness[:80]},
        )


@rule("run.impossible_usage", "The session's usage cannot be true", "note")
def check_impossible_usage(context: Context) -> Iterator[Statement]:
    """Tokens, cost and seconds are never negative, and no provider writes tens of thousands of tokens a second.

    Example: -1 output tokens, or a million of them in ten seconds. Usage decides no score; it is shown beside it.
    """
    usage, seconds = context.record.usage, context.record.elapsed_seconds
    values = {name: getattr(usage, name) for name in usage.__struct_fields__} | {
        name: getattr(context.record, name) for name in ("elapsed_seconds", "total_elapsed_seconds")
    }
    for name, value in values.items():
        if value is not None and not value >= 0:
            yield _usage(f"{name} is {value}; need a number >= 0", {name: value})
    if seconds is None or seconds <= 0:
        return
    for name, limit in (("output_tokens", _TOKENS_PER_SECOND), ("cost_usd", _COST_PER_SECOND)):
        value = values[name]
        if value is not None and value > limit * seconds:
            yield _usage(f"{name} is {value} in {seconds} seconds", {name: value, "elapsed_seconds": seconds})


def _usage(message: str, data: dict[str, Any]) -> Statement:
    return Statement(f"Usage cannot be as recorded: {message}.", "result.json", data=data)
