"""`/styleguide/`: every part of the pages in every state, from made-up data. It exists in debug mode only."""

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from grading.problem import load_decks
from leaderboard.boards.baselines import list_baselines
from leaderboard.boards.cells import Cell
from leaderboard.boards.compare import Comparison, Contest, ProblemPart, ShapeLine, Timing, sign_test
from leaderboard.boards.files import TextFile
from leaderboard.boards.home import glance_at
from leaderboard.boards.language_models import ModelBoard, ModelView, Spent
from leaderboard.boards.matrix import build_board
from leaderboard.boards.method import list_rules
from leaderboard.boards.problems import ProblemView, list_costs
from leaderboard.boards.slices import cut
from leaderboard.boards.standing import Standing
from leaderboard.boards.timeline import read_timeline
from leaderboard.charts import frontier_chart, roofline_chart, shape_chart, spread_chart
from leaderboard.pages import desk_samples, grade_samples, samples
from leaderboard.prose import parse

_PROSE = """## Heading

Text with `code`, **weight** and a [link](/methodology/).

- one
- two

| a | b |
|---|---|
| 1 | 2 |
"""


@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    """Show the parts of the pages."""
    if not settings.DEBUG:
        raise Http404("the style guide exists in debug mode only")
    cells = samples.cells()
    return render(request, "styleguide.html", _parts(cells) | _lists(cells) | _run(cells) | _desk(cells))


def _parts(cells: list[Cell]) -> dict[str, Any]:
    """Return the small parts."""
    standing, metric = samples.standing(cells), samples.problem().metric
    made = [
        roofline_chart(samples.problem(), standing),
        frontier_chart(metric, standing),
        spread_chart(metric, standing),
    ]
    a, b, c = (cell.entrant for cell in cells[:3])
    return {
        "cells": [*cells, None],
        "metric": metric,
        "standing": standing,
        "baselines": list_baselines(standing),
        "charts": [(str(number), chart) for number, chart in enumerate(made) if chart],
        "contests": [
            Contest(a, b, 9, 2, 1, 1.31, sign_test(9, 2), sign_test(9, 2)), Contest(a, c, 2, 2, 0, 1.0, 1.0, 1.0),
            Contest(b, c, 0, 0, 3, 1.0, None), Contest(b, a, 0, 0, 0, 1.0, None),
        ],
        "runs": [samples.summary(cell) for cell in cells],
        "refused": [samples.summary(cell) for cell in cells if not cell.is_published],
        "rules": [rule for group in list_rules() for rule in group.rules][:3],
        "blocks": parse(_PROSE),
        "part": cut(range(250), "100"),
        "counts": {"published": 12_345, "withheld": 6, "failed": 0},
        "choice": {"label": "Harness", "name": "harness", "options": (("codex", "codex"), ("claude", "claude"))},
    }  # fmt: skip


def _lists(cells: list[Cell]) -> dict[str, Any]:
    """Return what boards, models and comparisons show."""
    problem, deck = samples.problem(), load_decks()["hard"]
    board = build_board(deck, "H200", cells, None, "")
    empty = build_board(deck, "H100", [], None, "")
    summaries = tuple(samples.summary(cell) for cell in cells)
    spent = tuple(Spent(5025, 1_200_000, 48_000, 3.21, "What the auditor read.") for _ in summaries)
    timings = tuple(
        Timing(cell, 0.12 * place, 0.119 * place, 0.121 * place, 1 / place, place == 1)
        for place, cell in enumerate(cells[:2], 1)
    )
    part = ProblemPart(problem, tuple(cells[:3]), (ShapeLine("M=4096", (*timings, None)),))
    entrants, costs = tuple(cell.entrant for cell in cells[:3]), list_costs(problem, ["H200"])
    return {
        "board": board,
        "rows": cut(board.rows),
        "glances": [glance_at(board), glance_at(empty)],
        "model_board": ModelBoard("hard", deck.title, "H200", "NVIDIA H200", tuple(cells)),
        "model": ModelView("model", "Model", "A Lab", False, (), {}, 1, (), summaries, len(summaries), spent),
        "comparison": Comparison((), "hard", "H200", "", (), entrants, (part,), (), ()),
        "problem": problem,
        "problem_view": ProblemView(deck, problem, (("H200", "NVIDIA H200"),), costs, (), {}, None),
    }  # fmt: skip


def _run(cells: list[Cell]) -> dict[str, Any]:
    """Return what the page of a run shows."""
    arithmetic = samples.arithmetic()
    return {
        "published": samples.view(cells[0]),
        "withheld": samples.view(cells[5]),
        "arithmetics": [samples.arithmetic(agrees=agrees) for agrees in (True, None, False)],
        "unread": replace(arithmetic, score=None, shapes=(), reported=None, reason="no usable lines"),
        "shape_chart": shape_chart(arithmetic),
        "timeline": read_timeline(samples.view(cells[0])),
        "standings": [Standing(cells[0], True, 5), Standing(cells[0], False, 5), None],
        "paths": samples.PATHS,
        "file": TextFile("solution.py", "d" * 64, 1200, ("import torch", "x = 1"), False, False),
        "sources": [file for file in samples.view(cells[0]).files if file.role == "solution"],
    }


def _desk(cells: list[Cell]) -> dict[str, Any]:
    """Return what the review desk shows."""
    desks = desk_samples.desks(samples.view(cells[0]), cells[0])
    return {
        "desks": desks,
        "desk": desks[0][0],
        "places": desk_samples.places(),
        "queue_rows": desk_samples.rows(cells),
        "fields": desk_samples.fields(),
        "grades": grade_samples.grades(),
        "grading": grade_samples.grading(),
        "job_pages": grade_samples.job_pages(),
        "calibrations": grade_samples.calibrations(),
    }
