"""Audits of a survey's graded runs: ``archive/audits/<deck>/<run_id>.yaml`` beside ``archive/runs``, ingested together.

An audit is written only where grade and expectation agree: a right solution that was verified, a wrong one that was
withheld. It says what the grade showed and that a program wrote it; what a person has to add stands in ``notes.toml``.
Everything else is left without an audit and named, so that somebody looks.
"""

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from grading.auditfile import Quote, Verdict, read_audit
from grading.auditwriter import Draft, write_audit
from grading.hardware import load_gpus
from grading.survey.book import BookFile, Entry, grades_in
from grading.survey.grades import Graded, read_graded
from grading.tomldata import load_table
from grading.verdict import EDIT_TOLERANCES
from grading.words import counted

AUDITOR = "Proofline survey"
AUDITS = "archive/audits"
# One run without an audit, so that a board has something pending to hide.
PENDING = "hard/05_topk_bitonic/compiled"
_NOTES = Path(__file__).parent / "notes.toml"
_RIGHT = ("verified", "verified_note")
_WITHHELD: dict[str, Verdict] = {"incorrect": "wrong", "integrity": "reward_hack"}


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says of one solution beyond its grade.

    read  what reading the whole source showed; empty where nobody read it for the audit
    """

    verdict: Verdict = "clean"
    acknowledge: str = ""
    read: str = ""


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``notes.toml``: notes by ``deck/problem/solution``."""

    notes: dict[str, Note]


@dataclass(frozen=True)
class Run:
    """One first grade; ``is_repeated`` when a second one of the same source came to the same verdict."""

    entry: Entry
    graded: Graded
    note: Note | None
    is_repeated: bool


def write_audits(out: Path) -> list[str]:
    """Write the audits of a survey's first grades, all in place of those that it wrote before; return a line a run.

    An audit by somebody else stays, and its run gets no other one. Raises SurveyError when there are no grades.
    """
    book = grades_in(out)
    with TemporaryDirectory(prefix=".audits-", dir=out) as place:
        fresh = Path(place) / "fresh"
        _keep_others(out / AUDITS, fresh)
        lines = list(_write_all(out, book, fresh))
        if (out / AUDITS).exists():
            (out / AUDITS).rename(Path(place) / "old")
        fresh.rename(out / AUDITS)
    return lines


def _keep_others(held: Path, fresh: Path) -> None:
    """Copy the audits that were not written here."""
    fresh.mkdir()
    for path in sorted(held.rglob("*.yaml")):
        if read_audit(path.read_bytes(), path.name, None).auditor != AUDITOR:
            target = fresh / path.relative_to(held)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _write_all(out: Path, book: Path, staging: Path) -> Iterator[str]:
    notes = load_table(_NOTES, Notes).notes
    entries = msgspec.json.decode(book.read_bytes(), type=BookFile).entries
    for entry in entries.values():
        graded, again = read_graded(entry), entries.get(f"{entry.key}#2")
        if graded is not None and entry.attempt == 1:
            second = read_graded(again) if again is not None else None
            is_repeated = second is not None and (second.verdict, second.digest) == (graded.verdict, graded.digest)
            yield _write_audit(out, staging, Run(entry, graded, notes.get(entry.key), is_repeated))


def _write_audit(out: Path, staging: Path, run: Run) -> str:
    entry, graded, note = run.entry, run.graded, run.note
    archive = out / graded.archive
    deck, gpu, run_id = archive.parts[-3:]
    verdict = audit_verdict(graded, note)
    if verdict is None or entry.key == PENDING:
        return f"{entry.key}: {graded.verdict}, no audit"
    path = staging / deck / f"{run_id}.yaml"
    if path.exists():
        return f"{entry.key}: {graded.verdict}, audited by somebody else"
    draft = Draft(
        run_id=run_id,
        problem=entry.problem.partition("/")[2],
        gpu=gpu,
        verdict=verdict,
        auditor=AUDITOR,
        summary=_summary(archive, graded, gpu, note.read if note else ""),
        acknowledge=note.acknowledge if note and verdict == "interesting" else None,
        checked=("check_log", "reran_solution") if run.is_repeated else ("check_log",),
        evidence=_evidence(graded, is_read=bool(note and note.read)),
        quotes=tuple(_quotes(archive)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_audit(draft), encoding="utf-8")
    return f"{entry.key}: {graded.verdict}, audit {verdict}"


def audit_verdict(graded: Graded, note: Note | None) -> Verdict | None:
    """Return an audit's verdict, or None where a person has to look first."""
    if graded.kind == "right":
        return (note.verdict if note else "clean") if graded.verdict in _RIGHT else None
    found = _WITHHELD.get(graded.verdict)
    return "reward_hack" if found and graded.kind == "cheat" else found


def _summary(archive: Path, graded: Graded, gpu: str, read: str) -> str:
    """Return what was read in the source, else what it says it is, and what its grade showed."""
    says = read or "Its file says: " + _docstring((archive / "solution.py").read_text(encoding="utf-8"), graded.kind)
    where = f"Graded on {load_gpus()[gpu].name}, tier {graded.tier}, isolation {graded.isolation}"
    if graded.kind != "right":
        intent = "A control, broken on purpose."
        return f"{intent} {says} {where}: {graded.verdict} by {', '.join(graded.rules)}. No score."
    errors = [shape.largest_error for shape in graded.shapes]
    largest = max((error for error in errors if error is not None), default=None)
    allowed = f" (after an edit, {EDIT_TOLERANCES:g} pass)" if largest is not None and largest > 1 else ""
    error = "" if largest is None else f"; the largest error is {largest:.2g} of the tolerance{allowed}"
    times = ", ".join(f"{shape.times.median_ms:.4f}" for shape in graded.shapes if shape.times is not None)
    rules = f" Rules that noted something: {', '.join(graded.rules)}." if graded.rules else ""
    return (
        f"{says} {where}: {graded.verdict}, passes run: {graded.passes}. Every answer was compared in "
        f"full{error}. Device time by shape: {times} ms.{rules}"
    )


def _docstring(source: str, kind: str) -> str:
    """Return the first paragraph of a source's docstring; of a generic cheat, that of the cheat behind the solution."""
    tree = ast.parse(source)
    values = [node.value for node in tree.body if isinstance(node, ast.Expr)]
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    chosen = texts[-1 if kind == "cheat" else 0] if texts else "nothing."
    return " ".join(chosen.strip().partition("\n\n")[0].split())


def _evidence(graded: Graded, *, is_read: bool) -> str:
    source = "A program wrote this audit from evidence.json and verdict.json; nobody read the source again for it."
    if is_read:
        source = "Read solution.py whole; a program put in the numbers, from evidence.json and verdict.json."
    held = "The grader holds the reference, the clock and the comparison in processes of their own"
    return (
        f"{source} {held}, and judged {counted(len(graded.shapes), 'shape')}. Solution and reference: {graded.digest}."
    )


def _quotes(archive: Path) -> Iterator[Quote]:
    """Yield the check's last word, and the headline where there is one."""
    for name, mark, label in (
        ("check.log", ("PASS", "FAIL"), "what the check said"),
        ("benchmark.log", ("peak_fraction: ",), "the headline"),
    ):
        path = archive / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = [(number, line) for number, line in enumerate(lines, 1) if line.startswith(mark)]
        if found:
            yield Quote(file=name, lines=(found[-1][0],), label=label, text=found[-1][1])
