"""The list of runs, and one run."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from grading.cpushapes import CPU_SHAPES
from leaderboard.boards import read_run
from leaderboard.boards.arithmetic import read_arithmetic
from leaderboard.boards.files import open_paths
from leaderboard.boards.filters import run_choices
from leaderboard.boards.run_pages import FILTERS, read_page
from leaderboard.boards.standing import read_standing
from leaderboard.boards.timeline import read_timeline
from leaderboard.charts import shape_chart
from leaderboard.pages.public import public_page
from leaderboard.pages.query import is_staff, text_filters


@public_page
def run_list(request: HttpRequest) -> HttpResponse:
    """List the runs that match; the address holds the whole state."""
    filters, staff, now = text_filters(request, FILTERS), is_staff(request), timezone.now()
    context = {
        "page": read_page(filters, now, is_staff=staff),
        "choices": run_choices(now, is_staff=staff),
        "filters": filters,
        "is_filtered": any(value for name, value in filters.items() if name != "after"),
    }
    return render(request, "runs.html", context)


@public_page
def run(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Show everything about one run; what is not a result stands in its evidence block only."""
    now, staff = timezone.now(), is_staff(request)
    view = read_run(deck, gpu, run_id, now, is_staff=staff)
    if view is None:
        raise Http404("no such run, or it is not public")
    arithmetic, paths = read_arithmetic(view), open_paths(view, is_staff=staff)
    context = {
        "view": view,
        "run": view.summary,
        "arithmetic": arithmetic,
        "chart": shape_chart(arithmetic),
        "timeline": read_timeline(view),
        "standing": read_standing(view, now),
        "paths": paths,
        "taken": [file for file in view.files if file.path in paths and file.role != "transcript"],
        "place": f"{deck}/{gpu}/{run_id}",
        "has_small_shapes": view.problem.key in CPU_SHAPES,
        "sources": [file for file in view.files if file.role in ("solution", "sidecar")],
    }
    return render(request, "run.html", context)
