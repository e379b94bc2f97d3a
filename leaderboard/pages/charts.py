"""Pictures: a chart by itself, drawn, as numbers and as a figure for Plotly; and the cards of link previews."""

import orjson
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from leaderboard.boards import read_board, read_run
from leaderboard.boards.arithmetic import read_arithmetic
from leaderboard.boards.problems import ProblemView, Standings, read_problem
from leaderboard.boards.standing import read_standing
from leaderboard.cards import board_card, run_card
from leaderboard.charts import Chart, frontier_chart, roofline_chart, shape_chart, spread_chart
from leaderboard.charts.standalone import draw_svg, write_csv
from leaderboard.pages.public import public_page
from leaderboard.pages.query import is_staff


def charts_of(view: ProblemView, standing: Standings) -> dict[str, Chart]:
    """Return the charts of a problem on one GPU that its results allow, by the name in their address."""
    made: dict[str, Chart | None] = {
        "roofline": roofline_chart(view.problem, standing),
        "frontier": frontier_chart(view.problem.metric, standing),
        "spread": spread_chart(view.problem.metric, standing),
    }
    return {kind: chart for kind, chart in made.items() if chart is not None}


@public_page
def problem_chart(request: HttpRequest, deck: str, problem: str, gpu: str, kind: str, ending: str) -> HttpResponse:
    """Return a chart of a problem on one GPU."""
    view = read_problem(deck, problem, timezone.now())
    standing = next((held for held in view.standings if held.gpu == gpu), None) if view else None
    chart = charts_of(view, standing).get(kind) if view and standing else None
    if view is None or standing is None or chart is None:
        raise Http404("no such chart")
    return _answer(chart, ending, f"{view.problem.title} on {standing.gpu_name}")


@public_page
def run_chart(request: HttpRequest, deck: str, gpu: str, run_id: str, ending: str) -> HttpResponse:
    """Return the chart of a run's shapes; there is none of a run that is not a result."""
    view = read_run(deck, gpu, run_id, timezone.now(), is_staff=is_staff(request))
    chart = shape_chart(read_arithmetic(view)) if view and view.is_published else None
    if view is None or chart is None:
        raise Http404("no such chart")
    return _answer(chart, ending, f"{view.summary.entrant.label}, {view.summary.problem_title} on {gpu}")


def _answer(chart: Chart, ending: str, about: str) -> HttpResponse:
    if ending == "svg":
        return HttpResponse(draw_svg(chart, about), content_type="image/svg+xml; charset=utf-8")
    if ending == "csv":
        return HttpResponse(write_csv(chart), content_type="text/csv; charset=utf-8")
    if ending == "json":
        return HttpResponse(orjson.dumps({"summary": chart.summary, **chart.plot}), content_type="application/json")
    raise Http404("a chart ends in svg, csv or json")


@public_page
def board_picture(request: HttpRequest, deck: str, gpu: str) -> HttpResponse:
    """Return the social card of a board."""
    found = read_board(deck, gpu, timezone.now())
    if found is None:
        raise Http404("no such board")
    return HttpResponse(board_card(found), content_type="image/png")


@public_page
def run_picture(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Return the social card of a run; without a score where it is not a result."""
    now = timezone.now()
    view = read_run(deck, gpu, run_id, now, is_staff=is_staff(request))
    if view is None:
        raise Http404("no such run, or it is not public")
    return HttpResponse(run_card(view, read_standing(view, now)), content_type="image/png")
