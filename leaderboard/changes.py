"""Differences in words: between two states of a run's evidence, and between two sets of cells."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leaderboard.models import ReleasedCell

Evidence = dict[str, Any]


def describe(before: Evidence, after: Evidence) -> list[str]:
    """Return what changed between two evidence summaries (see recompute), one sentence each; empty when nothing did."""
    return [
        *_record(before, after),
        *_audits(before, after),
        *_problem_and_peaks(before, after),
        *_findings(before, after),
        *_waivers(before, after),
    ]


def _record(before: Evidence, after: Evidence) -> Iterator[str]:
    if before["content"] != after["content"]:
        yield f"archive changed from {before['content'][:12]} to {after['content'][:12]}"
    elif before["record"] != after["record"]:
        yield "the same archive is read into another record"


def _audits(before: Evidence, after: Evidence) -> Iterator[str]:
    old = {(file, digest): verdict for file, digest, verdict in before["audits"]}
    new = {(file, digest): verdict for file, digest, verdict in after["audits"]}
    last = list(old.values())[-1] if old else None
    for key, verdict in new.items():
        if key in old:
            if old[key] != verdict:
                yield f"audit changed from {old[key]} to {verdict}"
        elif last is None:
            yield f"audit added: {verdict}"
        else:
            yield f"audit changed from {last} to {verdict}" if verdict != last else f"another audit says {verdict}"


def _problem_and_peaks(before: Evidence, after: Evidence) -> Iterator[str]:
    if before["problem"] != after["problem"]:
        yield f"problem version changed from {before['problem'][:12]} to {after['problem'][:12]}"
    scores = f"{_score(before)} -> {_score(after)}"
    if before["peaks"] != after["peaks"]:
        yield f"peak table v{before['peaks']['version']} -> v{after['peaks']['version']}: {scores}"
    elif before["score"] != after["score"]:
        yield f"score {scores}"


def _score(evidence: Evidence) -> str:
    return "none" if evidence["score"] is None else f"{evidence['score'][0]:.4g}"


def _findings(before: Evidence, after: Evidence) -> Iterator[str]:
    old = Counter((code, severity) for code, severity, _ in before["findings"])
    new = Counter((code, severity) for code, severity, _ in after["findings"])
    for (code, severity), number in sorted((new - old).items()):
        yield f"finding added: {code} ({severity})" + (f" {number} times" if number > 1 else "")
    for (code, severity), number in sorted((old - new).items()):
        yield f"finding gone: {code} ({severity})" + (f" {number} times" if number > 1 else "")
    if old == new and before["findings"] != after["findings"]:
        yield "a finding says something else"


def _waivers(before: Evidence, after: Evidence) -> Iterator[str]:
    old, new = dict(before["waivers"]), dict(after["waivers"])
    for code in sorted(set(old) | set(new)):
        if code not in old:
            yield f"waiver added: {code}"
        elif code not in new:
            yield f"waiver gone: {code}"
        elif old[code] != new[code]:
            yield f"waiver of {code} now expires {new[code]} instead of {old[code]}"


@dataclass(frozen=True, slots=True)
class CellChange:
    """One cell that two releases show differently. Scores stand here only where the cell is published."""

    cell: str
    kind: str
    words: str
    before: ReleasedCell | None
    after: ReleasedCell | None


def compare(before: Iterable[ReleasedCell], after: Iterable[ReleasedCell]) -> list[CellChange]:
    """Return what enters, leaves, moves or changes its reason between two sets of cells, in order of cell id."""
    old, new = {row.cell: row for row in before}, {row.cell: row for row in after}
    changes = (_change(name, old.get(name), new.get(name)) for name in sorted(set(old) | set(new)))
    return [change for change in changes if change is not None]


def _change(name: str, before: ReleasedCell | None, after: ReleasedCell | None) -> CellChange | None:
    was, now = _is_published(before), _is_published(after)
    if now and not was:
        words = "published for the first time" if before is None else f"was {before.status}, is published"
        return CellChange(name, "enters", words, before, after)
    if was and not now:
        words = "no longer public" if after is None else f"{after.status}: {', '.join(after.reasons)}"
        return CellChange(name, "leaves", words, before, after)
    if was and now and before is not None and after is not None:
        return _moved(name, before, after)
    if before is None or after is None:
        kind, row = ("appears", after) if before is None else ("disappears", before)
        return CellChange(name, kind, f"{row.status}: {', '.join(row.reasons)}" if row else "", before, after)
    if (before.status, before.reasons) != (after.status, after.reasons):
        return CellChange(name, "changes", f"now {after.status}: {', '.join(after.reasons)}", before, after)
    return None


def _moved(name: str, before: ReleasedCell, after: ReleasedCell) -> CellChange | None:
    if before.run_id != after.run_id:
        return CellChange(name, "moves", "backed by another run", before, after)
    if before.score != after.score:
        return CellChange(name, "moves", "the same run is scored anew", before, after)
    return None


def _is_published(row: ReleasedCell | None) -> bool:
    return row is not None and row.status == ReleasedCell.Status.PUBLISHED
