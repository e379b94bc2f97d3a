"""Every page's data under the page's own address with ``.json``: the same functions that the pages call."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import orjson
from django.http import Http404, HttpRequest, HttpResponse

from grading.hardware import Gpu
from grading.problem import Deck, Metric, Problem
from leaderboard import representation
from leaderboard.boards import read_board, read_run
from leaderboard.boards.cells import AuditView, Cell, EntrantView
from leaderboard.boards.compare import read_comparison
from leaderboard.boards.corrections import list_corrections
from leaderboard.boards.filters import BOARD_FILTERS, filter_board
from leaderboard.boards.gpus import list_gpus, read_gpu
from leaderboard.boards.grading import read_grading, read_job
from leaderboard.boards.home import read_home
from leaderboard.boards.language_models import list_models, read_model
from leaderboard.boards.method import list_rules
from leaderboard.boards.problems import list_problems, read_problem
from leaderboard.boards.releases import list_releases, read_release
from leaderboard.boards.run_pages import FILTERS, read_page
from leaderboard.boards.runs import RunSummary, RunView
from leaderboard.boards.verifications import VerificationView
from leaderboard.boards.withheld import read_withheld
from leaderboard.datasets import describe
from leaderboard.models import Release
from leaderboard.pages.compare import SLOTS
from leaderboard.pages.query import text_filters

_SHAPES: dict[type, Callable[[Any], Any]] = {
    Cell: representation.cell_data,
    RunSummary: representation.run_summary_data,
    RunView: representation.run_data,
    EntrantView: representation.entrant_data,
    Metric: representation.metric_data,
    Problem: representation.problem_data,
    Gpu: representation.gpu_data,
    Deck: lambda deck: {"deck": deck.id, "title": deck.title},
    Release: representation.release_data,
    VerificationView: representation.verification_data,
    AuditView: lambda audit: {
        "verdict": audit.verdict,
        "auditor": audit.auditor,
        "at": representation.rfc3339(audit.at),
    },
}


def plain(value: Any) -> Any:
    """Return what orjson cannot write by itself as plain data."""
    shape = _SHAPES.get(type(value))
    if shape is not None:
        return shape(value)
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"{type(value).__name__} is not data of a page")


def _answer(data: Any) -> HttpResponse:
    if data is None:
        raise Http404("no such page, or it is not public")
    text = orjson.dumps(data, default=plain, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_UTC_Z)
    return HttpResponse(text, content_type="application/json")


def home(request: HttpRequest) -> HttpResponse:
    """The front page's data."""
    return _answer(read_home(_at(request)))


def board(request: HttpRequest, deck: str, gpu: str) -> HttpResponse:
    """A board's data, filtered as its page is."""
    asked = text_filters(request, ("sort", *BOARD_FILTERS))
    found = read_board(deck, gpu, _at(request), sort=asked.pop("sort"))
    return _answer(replace(found, rows=filter_board(found, **asked).rows) if found else None)


def model_list(request: HttpRequest) -> HttpResponse:
    """The models' data."""
    return _answer({"models": list_models(_at(request))})


def model(request: HttpRequest, slug: str) -> HttpResponse:
    """A model's data."""
    return _answer(read_model(slug, _at(request)))


def problem_list(request: HttpRequest) -> HttpResponse:
    """The problems' data."""
    return _answer({"decks": [{"deck": deck, "problems": lines} for deck, lines in list_problems(_at(request))]})


def problem(request: HttpRequest, deck: str, problem: str) -> HttpResponse:
    """A problem's data."""
    return _answer(read_problem(deck, problem, _at(request)))


def gpu_list(request: HttpRequest) -> HttpResponse:
    """The GPUs' data, and what is known about grading on them."""
    return _answer({"gpus": list_gpus(_at(request)), **representation.grading_data(read_grading(_at(request)))})


def gpu(request: HttpRequest, key: str) -> HttpResponse:
    """A GPU's data, and what is known about grading on it."""
    found = read_gpu(key, _at(request))
    if found is None:
        return _answer(None)
    return _answer({**plain(found), **representation.grading_data(read_grading(_at(request), key))})


def job(request: HttpRequest, job: int) -> HttpResponse:
    """A grade's data."""
    page = read_job(job, _at(request)) if job < 2**31 else None
    return _answer(representation.job_data(page) if page else None)


def run_list(request: HttpRequest) -> HttpResponse:
    """The data of the list of runs."""
    return _answer(read_page(text_filters(request, FILTERS), _at(request)))


def run(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """A run's data."""
    is_plain = all(text.isprintable() for text in (deck, gpu, run_id))
    return _answer(read_run(deck, gpu, run_id, _at(request)) if is_plain else None)


def withheld(request: HttpRequest) -> HttpResponse:
    """The data of what is withheld."""
    return _answer(read_withheld(text_filters(request, ("board", "reason", "status")), _at(request)))


def release_list(request: HttpRequest) -> HttpResponse:
    """The releases' data."""
    return _answer({"releases": list_releases()})


def release(request: HttpRequest, number: int) -> HttpResponse:
    """A release's data."""
    return _answer(read_release(number, _at(request)) if number < 2**31 else None)


def methodology(request: HttpRequest) -> HttpResponse:
    """The rules' data."""
    return _answer({"rules": list_rules()})


def compare(request: HttpRequest) -> HttpResponse:
    """The data of a comparison."""
    asked = text_filters(request, ("board", *SLOTS))
    return _answer(read_comparison(asked["board"], [asked[slot] for slot in SLOTS], _at(request)))


def correction_list(request: HttpRequest) -> HttpResponse:
    """The corrections' data."""
    return _answer({"corrections": list_corrections(_at(request))})


def data(request: HttpRequest) -> HttpResponse:
    """What the data are, as schema.org's Dataset, and how many cells of each status there are."""
    home = read_home(_at(request))
    return _answer({"counts": home.counts, "dataset": describe(home.release) if home.release else None})


def _at(request: HttpRequest) -> Any:
    return request.moment  # type: ignore[attr-defined]
