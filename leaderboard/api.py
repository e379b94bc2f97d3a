"""The read API under ``/api/v1/``: thin over boards.py, JSON by orjson, problems as ``application/problem+json``."""

import uuid
from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import NinjaAPI
from ninja.errors import ValidationError

from grading.hardware import load_gpus
from grading.integrity import RULES
from grading.problem import load_decks
from leaderboard import boards, representation
from leaderboard.models import Finding, LanguageModel, Release

MAX_PAGE = 500
api = NinjaAPI(
    title="Proofline",
    version="1",
    description="Cells, runs and findings of the leaderboard. What is unknown or withheld is null, never 0.",
    urls_namespace="api",
    docs_url=None,
)


class ApiProblem(Exception):
    """An answer that is not the one asked for: status, stable code, and a sentence."""

    def __init__(self, status: int, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.field = status, code, detail, field


@api.exception_handler(ApiProblem)
def answer_problem(request: HttpRequest, problem: ApiProblem) -> HttpResponse:
    """Return an RFC 9457 document."""
    body = {
        "type": f"{settings.SITE_URL}/methodology/#{problem.code}",
        "title": problem.code.replace("_", " "),
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "field": problem.field,
    }
    return HttpResponse(orjson.dumps(body), status=problem.status, content_type="application/problem+json")


@api.exception_handler(ValidationError)
def answer_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Name the field of the first parameter that cannot be used."""
    first = error.errors[0] if error.errors else {"loc": ["request"], "msg": "invalid"}
    field = str(first["loc"][-1])
    return answer_problem(request, ApiProblem(422, "invalid_parameter", f"{field}: {first['msg']}", field))


def answer(data: Any, *, headers: Mapping[str, str] | None = None, total: int | None = None) -> HttpResponse:
    """Return data as JSON that any page may read."""
    response = HttpResponse(orjson.dumps(data), content_type="application/json")
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = "ETag, Link, X-Total-Count"
    if total is not None:
        response["X-Total-Count"] = str(total)
    for name, value in (headers or {}).items():
        response[name] = value
    return response


def find_release(number: int | None) -> Release | None:
    """Return the release asked for, or the latest one. Raises ApiProblem for a number that does not exist."""
    if number is None:
        return boards.latest_release()
    release = Release.objects.filter(number=number).first() if 0 < number < 2**31 else None
    if release is None:
        raise ApiProblem(404, "unknown_release", f"release {number} does not exist", "release")
    return release


@api.get("/cells", summary="Cells of a release", operation_id="list_cells")
def list_cells(
    request: HttpRequest,
    deck: str | None = None,
    gpu: str | None = None,
    problem: str | None = None,
    model: str | None = None,
    status: str | None = None,
    release: int | None = None,
    cursor: str | None = None,
    limit: int = 200,
) -> HttpResponse:
    """Return cells in order of id; pass ``next`` as ``cursor`` to go on. The release is frozen into the cursor."""
    limit = checked_limit(limit)
    after, pinned = parse_cursor(cursor)
    chosen = find_release(pinned if pinned is not None else release)
    columns = {"deck": deck, "gpu": gpu, "problem__slug": problem}
    cells = boards.read_cells(chosen, timezone.now(), **{name: value for name, value in columns.items() if value})
    wanted = [
        cell
        for cell in cells
        if (model is None or cell.entrant.model_slug == model) and (status is None or cell.status == status)
    ]
    page = [cell for cell in wanted if cell.id > after][: limit + 1]
    has_more = len(page) > limit
    page = page[:limit]
    number = chosen.number if chosen else None
    data = {
        "release": number,
        "count": len(wanted),
        "results": [representation.cell_data(cell) for cell in page],
        "next": f"{number}:{page[-1].id}" if has_more else None,
    }
    return answer(data, total=len(wanted))


def checked_limit(limit: int) -> int:
    """Return a page size. Raises ApiProblem outside 1 to 500."""
    if not 1 <= limit <= MAX_PAGE:
        raise ApiProblem(422, "invalid_parameter", f"limit is {limit}; need 1 to {MAX_PAGE}", "limit")
    return limit


def parse_cursor(cursor: str | None) -> tuple[str, int | None]:
    """Return (cell id to go on after, pinned release). Raises ApiProblem for a cursor that was not given out."""
    if cursor is None:
        return "", None
    number, separator, after = cursor.partition(":")
    if not separator or not number.isascii() or not number.isdigit() or len(number) > 9:
        raise ApiProblem(422, "invalid_parameter", "cursor was not given out by this API", "cursor")
    return after, int(number)


@api.get("/cells/{cell_id}", summary="One cell", operation_id="get_cell")
def get_cell(request: HttpRequest, cell_id: str, release: int | None = None) -> HttpResponse:
    """Return one cell of a release."""
    chosen = find_release(release)
    row = chosen.cells.filter(cell=cell_id).select_related("problem").first() if chosen else None
    if chosen is None or row is None:
        raise ApiProblem(404, "unknown_cell", "this release has no such cell", "cell_id")
    column = boards.read_cells(chosen, timezone.now(), deck=row.deck_id, gpu=row.gpu_id, problem=row.problem)
    return answer(representation.cell_data(next(cell for cell in column if cell.id == cell_id)))


@api.get("/runs", summary="Runs", operation_id="list_runs")
def list_runs(
    request: HttpRequest,
    deck: str = "",
    gpu: str = "",
    problem: str = "",
    model: str = "",
    harness: str = "",
    status: str = "",
    q: str = "",
    cursor: str | None = None,
    limit: int = 100,
) -> HttpResponse:
    """Return the visible runs, newest run id first; pass ``next`` as ``cursor`` to go on."""
    limit, now = checked_limit(limit), timezone.now()
    filters = {
        "deck": deck, "gpu": gpu, "problem": problem, "model": model, "harness": harness, "status": status, "q": q,
    }  # fmt: skip
    runs = boards.list_runs(filters, now)
    total = runs.count()
    page = list(boards.page_after(runs, cursor)[: limit + 1])
    has_more, page = len(page) > limit, page[:limit]
    summaries = [boards.summarise(run, now, was_published=run.was_published) for run in page]
    data = {
        "count": total,
        "results": [representation.run_summary_data(summary) for summary in summaries],
        "next": boards.run_cursor(page[-1]) if has_more else None,
    }
    return answer(data, total=total)


@api.get("/runs/{deck}/{gpu}/{run_id}", summary="One run", operation_id="get_run")
def get_run(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Return one run with its shapes, findings and audits; what is not a result is under ``evidence``."""
    view = boards.read_run(deck, gpu, run_id, timezone.now())
    if view is None:
        raise ApiProblem(404, "unknown_run", "there is no such run, or it is not public")
    return answer(representation.run_data(view))


@api.get("/models", summary="Language models", operation_id="list_models")
def list_models(request: HttpRequest) -> HttpResponse:
    """Return the models that have visible runs."""
    visible = boards.visible_runs(timezone.now())
    rows = LanguageModel.objects.filter(entrants__runs__in=visible).distinct().order_by("slug")
    return answer({"results": [representation.model_data(row) for row in rows]})


@api.get("/problems", summary="Problems", operation_id="list_problems")
def list_problems(request: HttpRequest) -> HttpResponse:
    """Return every problem of every deck with its shapes and formulas."""
    problems = [problem for deck in load_decks().values() for problem in deck.problems.values()]
    return answer({"results": [representation.problem_data(problem) for problem in problems]})


@api.get("/gpus", summary="GPUs", operation_id="list_gpus")
def list_gpus(request: HttpRequest) -> HttpResponse:
    """Return every GPU with all versions of its peak table."""
    return answer({"results": [representation.gpu_data(gpu) for gpu in load_gpus().values()]})


@api.get("/releases", summary="Releases", operation_id="list_releases")
def list_releases(request: HttpRequest) -> HttpResponse:
    """Return all releases, newest first."""
    return answer({"results": [representation.release_data(row) for row in Release.objects.all()]})


@api.get("/releases/{number}", summary="One release", operation_id="get_release")
def get_release(request: HttpRequest, number: int) -> HttpResponse:
    """Return one release with its counts."""
    release = find_release(number)
    if release is None:
        raise ApiProblem(404, "unknown_release", f"release {number} does not exist", "number")
    return answer(representation.release_data(release, with_counts=True))


@api.get("/findings", summary="Findings", operation_id="list_findings")
def list_findings(request: HttpRequest, code: str | None = None, limit: int = 200, after: int = 0) -> HttpResponse:
    """Return findings of visible runs: code, severity, the rule's sentence and the run. Numbers are on the run."""
    limit = checked_limit(limit)
    if code is not None and code not in RULES:
        raise ApiProblem(422, "invalid_parameter", f"code is {code!r}; accepted are {', '.join(RULES)}", "code")
    rows = Finding.objects.filter(run__in=boards.visible_runs(timezone.now()), pk__gt=after)
    rows = rows.filter(code=code) if code else rows
    page = list(rows.select_related("run").defer("run__record").order_by("pk")[: limit + 1])
    has_more, page = len(page) > limit, page[:limit]
    data = {
        "results": [representation.finding_data(row) for row in page],
        "next": page[-1].pk if has_more else None,
    }
    return answer(data)


@api.exception_handler(Exception)
def answer_bug(request: HttpRequest, error: Exception) -> HttpResponse:
    """Log a bug under an id and show only that id."""
    name = uuid.uuid4().hex[:12]
    representation.log_bug(name, error)
    return answer_problem(request, ApiProblem(500, "internal_error", f"internal error {name}"))
