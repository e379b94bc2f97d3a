"""Rules on transcripts, where an archive has one: what the session read, edited and switched.

Only tool calls and their results count. What was said, quoted or listed is no deed.

Source: docs/method.md "Findings".
"""

import re
from collections.abc import Iterable, Iterator

from grading.conduct import Deed, deeds_of, find_secrets
from grading.integrity.base import Context, Statement, lead, rule
from grading.names import find_model
from grading.transcript import transcripts_in

BLOCKS_TRANSCRIPT = frozenset({"transcript.secret"})
_SCORE = re.compile(r"(?<![0-9.])([0-9]+\.[0-9]{4})(?![0-9])")
_EXACT = re.compile(r"[0-9]+\.[0-9]*[1-9][0-9]{2}[1-9]")


def _deeds(context: Context, kinds: Iterable[str]) -> Iterator[tuple[str, Deed]]:
    wanted = frozenset(kinds)
    for path, transcript in transcripts_in(context.files):
        for deed in deeds_of(transcript.actions, context.record.key.run_id):
            if deed.kind in wanted:
                yield path, deed


@rule("transcript.reads_other_run", "The session read another run's records", "warn")
def check_reads_other_run(context: Context) -> Iterator[Statement]:
    """A tool call printed or copied another run's archive, published results, audits or another session's records.

    A call counts when content came back. Example: ``cat`` of a solution in another run's folder. Directory listings,
    process tables, lock owners, profiler wrappers, the run's own folder and plain mentions are no reading.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for path, deed in _deeds(context, ("reads",)):
        found.setdefault((path, deed.what), []).append(deed.line)
    for (path, what), lines in found.items():
        places = ", ".join(map(str, lines[:8]))
        yield Statement(
            f"The session read {what} ({len(lines)} call{'s' if len(lines) > 1 else ''}, line {places}).",
            path,
            lines[0],
            {"lines": lines[:20], "what": what},
        )


@rule("transcript.edits_deck", "The session wrote to a fixed file of the deck", "warn")
def check_edits_deck(context: Context) -> Iterator[Statement]:
    """A tool call edited, replaced or removed the check, the benchmark, the reference or the problem's data.

    Grading uses the deck's own files, so this changes no number by itself; an auditor should say what it was for.
    Example: ``sed -i`` on a tolerance in problem.yaml. Reading or running these files is no writing.
    """
    for path, deed in _first_of_each(_deeds(context, ("edits",))):
        yield Statement(f"The session wrote to {deed.what}.", path, deed.line, {"file": deed.what})


@rule("transcript.tampers", "The session ended other processes by name or set clocks", "warn")
def check_tampers(context: Context) -> Iterator[Statement]:
    """Ending processes by name can hit other runs, and clock or power settings change what is measured.

    Example: ``pkill -f python``, or ``nvidia-smi -lgc``. Ending a process by its number stays silent.
    """
    what = {"kills": "ended processes by name", "clocks": "set the device's clocks or power"}
    for path, deed in _first_of_each(_deeds(context, what)):
        yield Statement(f"The session {what[deed.kind]} ({deed.what}).", path, deed.line, {"kind": deed.kind})


def _first_of_each(deeds: Iterator[tuple[str, Deed]]) -> Iterator[tuple[str, Deed]]:
    seen: set[tuple[str, str, str]] = set()
    for path, deed in deeds:
        if (path, deed.kind, deed.what) not in seen:
            seen.add((path, deed.kind, deed.what))
            yield path, deed


@lead("lead.quoted_score", "The session wrote another run's exact score")
def check_quoted_score(context: Context) -> Iterator[Statement]:
    """A score of an earlier run of this board, to its last digit, stands in what the agent wrote.

    Only scores with at least three significant digits that no tool of the session had printed count, and never the
    run's own. Example: a plan to beat a number that only a published board shows. A rounded constant can equal a
    score.
    """
    others = {score for score in context.neighbours.scores if _EXACT.fullmatch(score)}
    others.discard(context.record.score_text or "")
    for path, transcript in transcripts_in(context.files) if others else ():
        shown: set[str] = set()
        for action in transcript.actions:
            quoted = set(_SCORE.findall(f"{action.text}\n{action.command}")) & others
            if quoted - shown:
                yield Statement(
                    "A score of an earlier run of this board is quoted to its last digit.", path, action.line
                )
                return
            shown.update(_SCORE.findall(action.output or ""))


@rule("transcript.secret", "The transcript holds a credential", "warn")
def check_secret(context: Context) -> Iterator[Statement]:
    """A key or token in a transcript keeps the transcript from being published, and it should be revoked.

    The run itself is not touched. Example: an API key in a printed environment. Placeholders and documented example
    keys stay silent, and the finding never repeats what it found.
    """
    for path in sorted(context.files):
        if path.endswith((".jsonl", ".log", ".err")):
            for kind, line in find_secrets(context.files[path]):
                yield Statement(f"{path} line {line} holds what looks like a live credential ({kind}).", path, line)


@rule("transcript.other_model", "Another model answered than the record names", "warn")
def check_other_model(context: Context) -> Iterator[Statement]:
    """The provider names the model in every answer; none of the names is one of the recorded model's.

    Example: a run recorded for one model and answered by its smaller sibling throughout. Names that the catalogue does
    not know stay silent, and so do helpers beside the recorded model.
    """
    recorded = find_model(context.record.model)
    for path, transcript in transcripts_in(context.files) if recorded is not None else ():
        served = {entry.slug for name in transcript.models if (entry := find_model(name)) is not None}
        if recorded is not None and served and recorded.slug not in served:
            yield Statement(
                f"The record names {context.record.model}; the answers come from {', '.join(sorted(served))}.",
                path,
                data={"recorded": recorded.slug, "served": sorted(served)},
            )


@rule("transcript.unreadable", "Parts of the transcript cannot be read", "note")
def check_unreadable(context: Context) -> Iterator[Statement]:
    """Lines that are no JSON objects, or a session beyond the limits, are left out of every rule on transcripts.

    Example: a last line that was cut when the disk was full.
    """
    for path, transcript in transcripts_in(context.files):
        if transcript.unreadable:
            yield Statement(f"{transcript.unreadable} lines of {path} cannot be read and were not judged.", path)


def may_publish_transcript(codes: Iterable[str]) -> bool:
    """Tell whether a run's transcript may be shown, given the codes of the run's findings."""
    return BLOCKS_TRANSCRIPT.isdisjoint(codes)
