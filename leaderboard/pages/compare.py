"""Entrants side by side."""

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
    return render(request, "compare.html", {"view": view, "slots": slots})
