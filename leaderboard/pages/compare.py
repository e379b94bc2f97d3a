"""Entrants side by side."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.boards.compare import read_comparison
from leaderboard.pages.public import public_page
from leaderboard.pages.query import text_filters

SLOTS = ("a", "b", "c", "d")


@public_page
def compare(request: HttpRequest) -> HttpResponse:
    """Compare two to four entrants of one board, shape by shape; the address holds the whole state."""
    filters = text_filters(request, ("board", *SLOTS))
    view = read_comparison(filters["board"], [filters[slot] for slot in SLOTS], timezone.now())
    slots = [
        (slot, filters[slot], label) for slot, label in zip(SLOTS, ("First", "Second", "Third", "Fourth"), strict=True)
    ]
    # The twin's address is made of what takes part: what else was asked for is not repeated.
    shown = [
        ("board", f"{view.deck}/{view.gpu}"),
        *((slot, row.slug) for slot, row in zip(SLOTS, view.entrants, strict=False)),
    ]
    return render(request, "compare.html", {"view": view, "slots": slots, "query": urlencode(shown)})
