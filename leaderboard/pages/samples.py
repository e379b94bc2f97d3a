"""Made-up cells and runs for the style guide: every state that a page can show, and no row of any table."""

import datetime
from dataclasses import replace

from django.contrib.auth.models import User

from grading import record
from grading.auditfile import read_audit
from grading.problem import Problem, load_decks
from leaderboard.boards.arithmetic import Arithmetic, ShapeRow, Span
from leaderboard.boards.cells import AuditView, Cell, EntrantView, Reason
from leaderboard.boards.problems import ShapeWinner, Standings
from leaderboard.boards.runs import RunSummary, RunView
from leaderboard.models import Assessment, Audit, Decision, Finding, Waiver

AT = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
HELD, FAILED = Reason("gpu.unproven", "No device name"), Reason("check.failed", "The check failed")
GONE = Reason("publication.withdrawn", "Withdrawn after publication")
REFUSED = Reason("publication.rejected", "Rejected by an approver")
PATHS = frozenset({"solution.py", "benchmark.log"})
_AUDIT = b"""run_id: 20260701_120000_sample
verdict: interesting
verdict_comment: worth a look
auditor: A. Auditor
summary: What the auditor read.
acknowledge: It caches its workspace.
evidence:
  - The timed loop and the checked loop call the same function.
code_quotes:
  - file: solution.py
    lines: 1-2
    label: The kernel
    text: |
      import torch
odd_field: kept as written
"""
_BROKEN = b"run_id: 20260701_120000_sample\nverdict: failed\nsummary: [\n"


def problem() -> Problem:
    """Return the problem that the samples are about."""
    return load_decks()["hard"].problems["01_fp8_gemm"]


def entrant(name: str, *, effort: str = "", is_baseline: bool = False) -> EntrantView:
    """Return an entrant of this name."""
    return EntrantView(name.casefold(), name.casefold(), name, "A Lab", "harness", effort, is_baseline)


def cells() -> list[Cell]:
    """Return one cell of each state: places shared and not, a baseline, withheld, failed, withdrawn, rejected."""
    audit = AuditView("clean", "A. Auditor", "What the auditor read.", AT)
    base = Cell("sample", "hard", "01_fp8_gemm", "FP8 GEMM", "H200", entrant("Model"), "published", problem().metric,
                "20260701_120000_sample", 1, audit=audit, started_at=AT)  # fmt: skip
    shown = [
        ("First", 0.6123, (1, 1), ""), ("Shared second", 0.5524, (2, 3), "high"), ("Also second", 0.5523, (2, 3), ""),
        ("A model with a very long name that has to break or end somewhere", 0.0312, (5, 5), "max"),
    ]  # fmt: skip
    published = [
        replace(base, id=name, entrant=entrant(name, effort=effort), score=score, low=score - 2e-5, high=score + 2e-5,
                rank=rank, share_of_best=score / 0.6123, started_at=AT + datetime.timedelta(days=day * 9))
        for day, (name, score, rank, effort) in enumerate(shown)
    ]  # fmt: skip
    vendor = replace(published[1], id="v", entrant=entrant("vendor library", is_baseline=True), score=0.41, low=0.4099,
                     high=0.4101, rank=(4, 4), share_of_best=0.41 / 0.6123)  # fmt: skip
    hidden = [("withheld", HELD, "Held"), ("failed", FAILED, "Failing"), ("withheld", GONE, "Gone"),
              ("withheld", REFUSED, "Refused")]  # fmt: skip
    return [*published, vendor, *(
        replace(base, id=name, entrant=entrant(name), status=status, reasons=(reason, HELD), audit=None)
        for status, reason, name in hidden
    )]  # fmt: skip


def standing(held: list[Cell]) -> Standings:
    """Return the standings that these cells make."""
    ranked = tuple(cell for cell in held if cell.is_published)
    winners = tuple(
        ShapeWinner(problem().shape_label(index), ranked[0], 0.12 * (index + 1), 0.6 / (index + 1))
        for index, _ in enumerate(problem().shapes)
    )
    others = tuple(cell for cell in held if not cell.is_published)
    return Standings("H200", "NVIDIA H200", 1, AT.date(), ranked, others, winners)


def summary(cell: Cell) -> RunSummary:
    """Return the run that backs a cell, as lists show it."""
    return RunSummary(cell.deck, cell.gpu, cell.run_id, cell.problem, cell.problem_title, cell.entrant, cell.status,
                      cell.score, cell.low, cell.high, 4, "clean", cell.reasons, cell.started_at)  # fmt: skip


def arithmetic(*, agrees: bool | None = True) -> Arithmetic:
    """Return a score written out: a shape with a reading, one whose lines contradict each other, one without any."""
    read = ShapeRow(0, "M=4096", "ms", "0.120000", 7, 1, (0.12, 0.1199, 0.1201), 812.5, (0.61, 0.609, 0.611), 0.07,
                    "compute", (0.58, 0.57, 0.59), True)  # fmt: skip
    odd = replace(read, index=1, label="M=8192", is_consistent=False, more_readings=0)
    none: Span | None = None
    unread = ShapeRow(2, "M=33", None, None, None, 0, none, None, none, 0.01, "bandwidth", none, True)
    return Arithmetic("benchmark.log", "operations ÷ time ÷ dense peak", "2 * M * N * K", "1,979 TFLOPS (fp8, dense)",
                      "TFLOPS", 1, "data sheet", (read, odd, unread), (0.6123, 0.6122, 0.6124), "0.6123", agrees, None,
                      4, "share of peak", "geomean")  # fmt: skip


def person() -> User:
    """Return somebody."""
    return User(username="approver")


def decision(kind: Decision.Kind = Decision.Kind.APPROVE) -> Decision:
    """Return an act of publication."""
    return Decision(sequence=12, kind=kind, actor=person(), at=AT, reason="Read it all.", details={},
                    evidence_digest="e" * 64, previous_hash="0" * 64, hash="1" * 64)  # fmt: skip


def view(cell: Cell) -> RunView:
    """Return a run with a finding of each severity, one excepted, and audits that read and that do not."""
    codes = [
        ("gpu.unproven", "block"),
        ("score.stale_peaks", "warn"),
        ("score.coarse", "note"),
        ("log.missing", "block"),
    ]
    findings = tuple(
        Finding(position=place, code=code, severity=severity, message="A sentence with what was compared.", data={},
                file="benchmark.log" if place else None, line=7 if place else None)
        for place, (code, severity) in enumerate(codes)
    )  # fmt: skip
    parsed, broken = read_audit(_AUDIT, "sample.yaml", "hard"), read_audit(_BROKEN, "broken.yaml", "hard")
    audits = tuple(
        (Audit(file=one.file, digest=one.digest, status=one.status, verdict=one.verdict, ingested_at=AT), one)
        for one in (parsed, broken)
    )
    granted = Waiver(code="log.missing", batch="old archives", reason="Nobody can add it any more.", is_reuse=True,
                     expires_at=AT, decision=decision(Decision.Kind.REUSE))  # fmt: skip
    return RunView(summary(cell), _record(cell), problem(), assessment(cell), findings, audits, (decision(),),
                   (granted,), (1, 2), cell.is_published)  # fmt: skip


def assessment(cell: Cell) -> Assessment:
    """Return what recompute would have derived of a cell's run."""
    is_eligible = cell.is_published
    return Assessment(
        score=cell.score, score_low=cell.low, score_high=cell.high, shapes=[], verdict="interesting",
        standing="eligible" if is_eligible else "blocked", blockers=[reason.code for reason in cell.reasons],
        waived=["log.missing"], method_version="1", problem_version="p" * 64, peak_version=1,
        evidence_digest="e" * 64, evidence={}, input_digest="i" * 64, needs_acknowledgement=True,
    )  # fmt: skip


def _record(cell: Cell) -> record.Record:
    files = tuple(
        record.ArchiveFile(path, "d" * 64, 1200, role)
        for path, role in (("solution.py", "solution"), ("benchmark.log", "benchmark"))
    )
    return record.Record(
        schema=record.SCHEMA_VERSION, key=record.RunKey(cell.deck, cell.gpu, cell.run_id), problem=cell.problem,
        harness="harness", model=cell.entrant.model_slug, files=files, elapsed_seconds=5025, framework="triton",
        usage=record.Usage(input_tokens=1_200_000, output_tokens=48_000, cost_usd=3.21),
        environment=record.Environment(driver="570.1", cuda="12.8", torch="2.9", triton="3.5"),
        regrade=record.Regrade(mode="isolated", at="2026-07-02"), device_name="NVIDIA H200",
    )  # fmt: skip
