"""`/styleguide/`: every small part of the pages in every state, from made-up data. It exists in debug mode only."""

import datetime
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from grading.problem import load_decks
from leaderboard.boards.baselines import list_baselines
from leaderboard.boards.cells import AuditView, Cell, EntrantView, Reason
from leaderboard.boards.compare import Contest, sign_test
from leaderboard.boards.method import list_rules
from leaderboard.boards.problems import ShapeWinner, Standings
from leaderboard.boards.runs import RunSummary
from leaderboard.boards.slices import cut
from leaderboard.charts import frontier_chart, roofline_chart, spread_chart
from leaderboard.prose import parse

_AT = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
_PROSE = """## Heading

Text with `code`, **weight** and a [link](/methodology/).

- one
- two

| a | b |
|---|---|
| 1 | 2 |
"""
_HELD, _FAILED = Reason("gpu.unproven", "No device name"), Reason("check.failed", "The check failed")
_GONE = Reason("publication.withdrawn", "Withdrawn after publication")
_REFUSED = Reason("publication.rejected", "Rejected by an approver")


@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    """Show the parts of the pages."""
    if not settings.DEBUG:
        raise Http404("the style guide exists in debug mode only")
    cells = _cells()
    standing = _standing(cells)
    problem = load_decks()["hard"].problems["01_fp8_gemm"]
    metric = problem.metric
    charts = [roofline_chart(problem, standing), frontier_chart(metric, standing), spread_chart(metric, standing)]
    a, b, c = (cell.entrant for cell in cells[:3])
    context: dict[str, Any] = {
        "cells": [*cells, None],
        "metric": problem.metric,
        "standing": standing,
        "baselines": list_baselines(standing),
        "charts": [(str(number), chart) for number, chart in enumerate(charts) if chart],
        "contests": [
            Contest(a, b, 9, 2, 1, 1.31, sign_test(9, 2), sign_test(9, 2)), Contest(a, c, 2, 2, 0, 1.0, 1.0, 1.0),
            Contest(b, c, 0, 0, 3, 1.0, None), Contest(b, a, 0, 0, 0, 1.0, None),
        ],
        "runs": [_run(cell) for cell in cells],
        "refused": [_run(cell) for cell in cells if not cell.is_published],
        "rules": [rule for group in list_rules() for rule in group.rules][:3],
        "blocks": parse(_PROSE),
        "part": cut(range(250), "100"),
        "counts": {"published": 12_345, "withheld": 6, "failed": 0},
        "choice": {"label": "Harness", "name": "harness", "options": (("codex", "codex"), ("claude", "claude"))},
    }  # fmt: skip
    return render(request, "styleguide.html", context)


def _entrant(name: str, *, lab: str = "A Lab", effort: str = "", is_baseline: bool = False) -> EntrantView:
    return EntrantView(name.casefold(), name.casefold(), name, lab, "harness", effort, is_baseline)


def _cells() -> list[Cell]:
    metric = load_decks()["hard"].problems["01_fp8_gemm"].metric
    audit = AuditView("clean", "A. Auditor", "What the auditor read.", _AT)
    base = Cell("sample", "hard", "01_fp8_gemm", "FP8 GEMM", "H200", _entrant("Model"), "published", metric,
                "20260701_120000_sample", 1, audit=audit, started_at=_AT)  # fmt: skip
    shown = [
        ("First", 0.6123, (1, 1), ""), ("Shared second", 0.5524, (2, 3), "high"), ("Also second", 0.5523, (2, 3), ""),
        ("A model with a very long name that has to break or end somewhere", 0.0312, (5, 5), "max"),
    ]  # fmt: skip
    cells = [
        replace(base, id=name, entrant=_entrant(name, effort=effort), score=score, low=score - 2e-5, high=score + 2e-5,
                rank=rank, share_of_best=score / 0.6123, started_at=_AT + datetime.timedelta(days=day * 9))
        for day, (name, score, rank, effort) in enumerate(shown)
    ]  # fmt: skip
    vendor = replace(cells[1], id="v", entrant=_entrant("vendor library", is_baseline=True), score=0.41, low=0.4099,
                     high=0.4101, rank=(4, 4), share_of_best=0.41 / 0.6123)  # fmt: skip
    hidden = [("withheld", _HELD, "Held"), ("failed", _FAILED, "Failing"), ("withheld", _GONE, "Gone"),
              ("withheld", _REFUSED, "Refused")]  # fmt: skip
    return [*cells, vendor, *(
        replace(base, id=name, entrant=_entrant(name), status=status, reasons=(reason, _HELD), audit=None)
        for status, reason, name in hidden
    )]  # fmt: skip


def _standing(cells: list[Cell]) -> Standings:
    ranked = tuple(cell for cell in cells if cell.is_published)
    problem = load_decks()["hard"].problems["01_fp8_gemm"]
    winners = tuple(
        ShapeWinner(problem.shape_label(index), ranked[0], 0.12 * (index + 1), 0.6 / (index + 1))
        for index, _ in enumerate(problem.shapes)
    )
    others = tuple(cell for cell in cells if not cell.is_published)
    return Standings("H200", "NVIDIA H200", 1, _AT.date(), ranked, others, winners)


def _run(cell: Cell) -> RunSummary:
    return RunSummary(cell.deck, cell.gpu, cell.run_id, cell.problem, cell.problem_title, cell.entrant, cell.status,
                      cell.score, cell.low, cell.high, 4, "clean", cell.reasons, cell.started_at)  # fmt: skip
