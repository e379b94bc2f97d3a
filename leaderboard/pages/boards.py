"""The front page and the boards."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.boards import read_board
from leaderboard.boards.filters import BOARD_FILTERS, filter_board
from leaderboard.boards.home import leaders_of, read_home
from leaderboard.boards.slices import cut
from leaderboard.boards.withheld import count_reasons
from leaderboard.pages.public import public_page
from leaderboard.pages.query import text_filters

FILTERS = (*BOARD_FILTERS, "sort", "show", "start")


@public_page
def home(request: HttpRequest) -> HttpResponse:
    """Show every board at a glance."""
    return render(request, "home.html", {"home": read_home(timezone.now())})


@public_page
def board(request: HttpRequest, deck: str, gpu: str) -> HttpResponse:
    """Show one board as a matrix of entrants by problems."""
    filters = text_filters(request, FILTERS)
    found = read_board(deck, gpu, timezone.now(), sort=filters["sort"])
    if found is None:
        raise Http404("no such board")
    request.latest_release = found.release
    chosen = {name: filters[name] for name in BOARD_FILTERS}
    shown = filter_board(found, **chosen)
    hidden = [cell for row in found.rows for cell in row.cells if cell is not None and not cell.is_published]
    context = {
        "board": found,
        "part": cut(shown.rows, filters["start"]),
        "options": shown.options,
        "leaders": leaders_of(found),
        "rivals": [row for row in shown.rows if row.published][:3],
        "reasons": count_reasons(hidden),
        "filters": filters,
        "is_filtered": any(value for name, value in filters.items() if name != "start"),
        "has_intervals": filters["show"] == "intervals",
    }
    return render(request, "board.html", context)
