"""Made-up things of the review desk for the style guide: what waits, what obstructs, and forms with their errors."""

from dataclasses import dataclass, replace
from typing import Any

from django.forms import Form

from leaderboard.boards.cells import Cell
from leaderboard.boards.excerpts import Excerpt, Line
from leaderboard.boards.runs import RunView
from leaderboard.models import Entrant, LanguageModel, Publication, Run
from leaderboard.pages import samples
from leaderboard.publishing import PublishingError
from leaderboard.review.actions import Seen
from leaderboard.review.evidence import Attempts, Desk, Judged, Pointed, Quoted, Source
from leaderboard.review.forms import TokenForm
from leaderboard.review.queue import Place, Row

_LINES = (Line(1, "import torch", False), Line(2, "x = torch.empty(8)", True, ("source.lead: worth reading",)))


@dataclass(frozen=True, slots=True)
class Failure:
    """An act that was refused, as the form shows it again."""

    action: str
    reason: str
    message: str


def run_row(cell: Cell, state: Publication.State | None) -> Run:
    """Return a run as the desk lists it, decided on or not."""
    model = LanguageModel(slug=cell.entrant.model_slug, name=cell.entrant.model_name)
    run = Run(
        deck_id=cell.deck, gpu_id=cell.gpu, run_id=cell.run_id, entrant=Entrant(slug=cell.entrant.slug, model=model)
    )
    samples.assessment(cell).run = run
    if state is not None:
        Publication(run=run, state=state, decision=samples.decision(), evidence_digest="e" * 64)
    return run


def desks(view: RunView, cell: Cell) -> list[tuple[Desk, Failure | None]]:
    """Return the desk before a decision, after one, after a lapse, where something obstructs, after a refused act."""
    waiting = _desk(view, run_row(cell, None))
    approved = replace(waiting, run=run_row(cell, Publication.State.APPROVED))
    return [
        (waiting, None),
        (replace(waiting, obstacle="Somebody else has to approve: you audited it."), None),
        (approved, None),
        (replace(approved, is_lapsed=True, differences=("a finding more",)), None),
        (waiting, Failure("waive", "", str(PublishingError("a reason is needed")))),
        (replace(waiting, run=run_row(cell, Publication.State.WITHDRAWN)), None),
    ]


def _desk(view: RunView, run: Run) -> Desk:
    excerpt = Excerpt("solution.py", _LINES, is_cut=True)
    source = Source("solution.py", _LINES, _LINES[1:], 400)
    others = (run_row(samples.cells()[1], Publication.State.APPROVED), run_row(samples.cells()[5], None))
    return Desk(
        run=run, seen=Seen("e" * 64, "", 0),
        findings=tuple(Pointed(row, excerpt if row.file else None) for row in view.findings),
        leads=(), duplicates=(), verifications=(), audits=_judged(view, excerpt), sources=(source,),
        attempts=Attempts(others, ()), is_lapsed=False, differences=(), obstacle=None, waivable=("gpu.unproven",),
    )  # fmt: skip


def _judged(view: RunView, excerpt: Excerpt) -> tuple[Judged, ...]:
    """Return audits whose quotes stand in the file, do not, and name no file that the archive holds."""
    found = []
    for row, audit in view.audits:
        quotes = tuple(
            Quoted(quote, shown, is_found)
            for quote in audit.quotes
            for shown, is_found in ((excerpt, True), (excerpt, False), (None, None))
        )
        found.append(Judged(row, audit, quotes, row.status == "read", audit.raw.get("acknowledge")))
    return tuple(found)


def places() -> list[Place]:
    """Return the places that a waiting run may take."""
    return [Place(1, 4, 0, True), Place(3, 4, 2, False), Place(1, 1, 0, True)]


def rows(held: list[Cell]) -> list[Row]:
    """Return lines of the queue: lapsed, with reasons, decided, never decided."""
    runs = [run_row(held[0], Publication.State.APPROVED), run_row(held[5], None), run_row(held[0], None)]
    base = Row(runs[0], held[0].entrant, held[0].metric, None, False, (), ())
    return [
        replace(base, is_lapsed=True, differences=("the audit changed",), reasons=held[5].reasons),
        replace(base, run=runs[1], reasons=held[5].reasons), base, replace(base, run=runs[2]),
    ]  # fmt: skip


def fields() -> list[Any]:
    """Return the fields of a form that was sent empty."""
    form: Form = TokenForm({}, scopes=["ingest", "audit"])
    return list(form)
