"""Reading routes: cells, runs, findings, catalogue, releases."""

from typing import Any

import orjson
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from grading.hardware import load_gpus
from grading.integrity import RULES
from grading.problem import load_decks
from leaderboard import boards, representation
from leaderboard.api import catalogue_schemas, params, schemas
from leaderboard.api.answers import answer, answer_page, find_release, pick, reading, snapshot_of
from leaderboard.boards.listing import (
    CELL_SORTS,
    NUMBER_SORTS,
    Position,
    cells_after,
    filter_cells,
    runs_after,
    select_runs,
    sort_cells,
    sort_runs,
)
from leaderboard.boards.runs import summarise_all, visible_assessments
from leaderboard.errors import ApiProblem
from leaderboard.models import Finding, LanguageModel, Release

router = Router()
CellFields, RunFields = params.fields_of(schemas.Cell.model_fields), params.fields_of(schemas.RunLine.model_fields)
RuleCode = params.one_of(RULES)


class CellListQuery(params.CellFilters, params.Paging):
    """Parameters of ``/cells``."""

    sort: params.CellSort = Field("id", description="field to sort by; `-` before it is descending; missing is last")
    fields: CellFields | None = Field(None, description="only these fields, separated by commas")


class RunListQuery(params.Filters, params.Paging):
    """Parameters of ``/runs``."""

    q: params.Text | None = Field(None, description="words in run id, model or problem title; all must be there")
    sort: params.RunSort = Field("-run_id", description="field to sort by; `-` before it is descending")
    fields: RunFields | None = Field(None, description="only these fields, separated by commas")


class FindingQuery(params.Paging):
    """Parameters of ``/findings``."""

    code: RuleCode | None = Field(None, description="finding code")
    severity: params.Severity | None = Field(None, description="severity")
    deck: params.Deck | None = Field(None, description="deck id")
    gpu: params.Gpu | None = Field(None, description="GPU key")


class ModelQuery(params.Query):
    """Parameters of ``/models``."""

    lab: params.Text | None = Field(None, description="the lab's name as `lab` spells it")


class ProblemQuery(params.Query):
    """Parameters of ``/problems``."""

    deck: params.Deck | None = Field(None, description="deck id")


@router.get("/cells", summary="Cells of a release", operation_id="list_cells", response=reading(schemas.CellPage))
def list_cells(request: HttpRequest, query: Query[CellListQuery]) -> HttpResponse:
    """Return cells in a total order; pass ``next`` as ``cursor`` to go on. The cursor stays with the same release."""
    release, position = query.cursor or (query.release, None)
    snapshot = snapshot_of(request, release)
    chosen = query.chosen()
    wanted = filter_cells(snapshot.cells, chosen) if chosen else list(snapshot.cells)
    ordered = wanted if query.sort == "id" else sort_cells(wanted, query.sort)
    rest = cells_after(ordered, query.sort, _typed(position, query.sort)) if position else ordered
    page = rest[: query.limit]
    following = None
    if len(rest) > len(page):
        value = CELL_SORTS[query.sort.lstrip("-")](page[-1])
        following = params.write_cursor(snapshot.release, Position(value, page[-1].id))
    if query.fields:
        rows = [pick(representation.cell_data(cell), query.fields) for cell in page]
    else:
        rows = [snapshot.json[cell.id] for cell in page]
    return answer_page(request, {"release": snapshot.release, "count": len(wanted)}, rows, following)


def _typed(position: Position, sort: str) -> Position:
    """Return a position whose value is of the sort's type; another one sorts as missing."""
    kind = float if sort.lstrip("-") in NUMBER_SORTS else str
    return position if isinstance(position.value, kind) else Position(None, position.id)


@router.get("/cells/{cell_id}", summary="One cell", operation_id="get_cell", response=reading(schemas.Cell))
def get_cell(request: HttpRequest, cell_id: str, query: Query[params.ReleaseQuery]) -> HttpResponse:
    """Return one cell of a release."""
    found = snapshot_of(request, query.release).json.get(cell_id)
    if found is None:
        raise ApiProblem("unknown_cell", "this release has no such cell", "cell_id")
    return HttpResponse(found, content_type="application/json")


@router.get("/runs", summary="Runs", operation_id="list_runs", response=reading(schemas.RunPage))
def list_runs(request: HttpRequest, query: Query[RunListQuery]) -> HttpResponse:
    """Return the visible runs, newest run id first; pass ``next`` as ``cursor`` to go on."""
    now = request.moment  # type: ignore[attr-defined]
    filters = {**query.chosen(), **({"q": query.q} if query.q else {})}
    runs = select_runs(filters, now)
    total = runs.count() if filters else visible_assessments().count()
    ordered = sort_runs(runs, query.sort)
    if query.cursor:
        ordered = runs_after(ordered, query.sort, query.cursor[1])
    found = list(ordered[: query.limit + 1])
    page = found[: query.limit]
    lines = summarise_all(page, now)
    following = None
    if len(found) > len(page):
        value = page[-1].shown_score if query.sort.lstrip("-") == "score" else None  # type: ignore[attr-defined]
        following = params.write_cursor(None, Position(value, boards.run_cursor(page[-1])))
    rows = [pick(representation.run_summary_data(line), query.fields) for line in lines]
    return answer_page(request, {"count": total}, rows, following)


@router.get("/runs/{deck}/{gpu}/{run_id}", summary="One run", operation_id="get_run", response=reading(schemas.Run))
def get_run(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Return one run with its shapes, findings and audits; what is not a result is under ``evidence``."""
    is_plain = all(text.isprintable() for text in (deck, gpu, run_id))
    view = boards.read_run(deck, gpu, run_id, request.moment) if is_plain else None  # type: ignore[attr-defined]
    if view is None:
        raise ApiProblem("unknown_run", "there is no such run, or it is not public")
    return answer(representation.run_data(view))


@router.get(
    "/findings", summary="Findings", operation_id="list_findings", response=reading(catalogue_schemas.FindingPage)
)
def list_findings(request: HttpRequest, query: Query[FindingQuery]) -> HttpResponse:
    """Return findings of visible runs: code, severity, the rule's sentence and the run. Numbers are on the run."""
    rows = Finding.objects.filter(run__in=boards.visible_runs(request.moment))  # type: ignore[attr-defined]
    columns = {"code": query.code, "severity": query.severity, "run__deck": query.deck, "run__gpu": query.gpu}
    rows = rows.filter(**{name: value for name, value in columns.items() if value is not None})
    total = rows.count()
    if query.cursor:
        run, place = (int(part) if part.isascii() and part.isdigit() else 0 for part in _halves(query.cursor[1].id))
        rows = rows.filter(Q(run__gt=run) | Q(run=run, position__gt=place))
    found = list(
        rows.select_related("run")
        .defer("run__record", "data", "message")
        .order_by("run", "position")[: query.limit + 1]
    )
    page = found[: query.limit]
    is_more = len(found) > len(page)
    following = params.write_cursor(None, Position(None, f"{page[-1].run_id}|{page[-1].position}")) if is_more else None
    return answer_page(
        request, {"count": total}, [orjson.dumps(representation.finding_data(row)) for row in page], following
    )


def _halves(text: str) -> tuple[str, str]:
    run, _, place = text.partition("|")
    return run[:9], place[:9]


@router.get(
    "/models", summary="Language models", operation_id="list_models", response=reading(catalogue_schemas.ModelList)
)
def list_models(request: HttpRequest, query: Query[ModelQuery]) -> HttpResponse:
    """Return the models that have visible runs."""
    visible = boards.visible_runs(request.moment)  # type: ignore[attr-defined]
    rows = LanguageModel.objects.filter(entrants__runs__in=visible).distinct().order_by("slug")
    if query.lab is not None:
        rows = rows.filter(lab=query.lab)
    found = [representation.model_data(row) for row in rows]
    return answer({"results": found}, len(found))


@router.get(
    "/problems", summary="Problems", operation_id="list_problems", response=reading(catalogue_schemas.ProblemList)
)
def list_problems(request: HttpRequest, query: Query[ProblemQuery]) -> HttpResponse:
    """Return the problems of every deck, or of one, with shapes and formulas."""
    decks = [deck for deck in load_decks().values() if query.deck in (None, deck.id)]
    found = [representation.problem_data(problem) for deck in decks for problem in deck.problems.values()]
    return answer({"results": found}, len(found))


@router.get("/gpus", summary="GPUs", operation_id="list_gpus", response=reading(catalogue_schemas.GpuList))
def list_gpus(request: HttpRequest) -> HttpResponse:
    """Return every GPU with all versions of its peak table."""
    found = [representation.gpu_data(gpu) for gpu in load_gpus().values()]
    return answer({"results": found}, len(found))


@router.get(
    "/releases", summary="Releases", operation_id="list_releases", response=reading(catalogue_schemas.ReleaseList)
)
def list_releases(request: HttpRequest) -> HttpResponse:
    """Return all releases, newest first."""
    found = [representation.release_data(row) for row in Release.objects.all()]
    return answer({"results": found}, len(found))


@router.get(
    "/releases/{number}",
    summary="One release",
    operation_id="get_release",
    response=reading(catalogue_schemas.ReleaseWithCells),
)
def get_release(request: HttpRequest, number: params.Number) -> HttpResponse:
    """Return one release with its number of cells by status, as it was released."""
    release: Any = find_release(number)
    return answer(representation.release_data(release, with_counts=True))
