"""Pages about the data: where they come from, and what was corrected."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard import metadata
from leaderboard.boards.corrections import list_corrections
from leaderboard.boards.home import read_home
from leaderboard.boards.slices import cut
from leaderboard.datasets import describe
from leaderboard.pages.public import public_page
from leaderboard.pages.query import text_filters


@public_page
def data(request: HttpRequest) -> HttpResponse:
    """Say what the data are, and how to take them."""
    home = read_home(timezone.now())
    context = {
        "home": home,
        "dataset": describe(home.release) if home.release else None,
        "citation": metadata.citation(home.release) if home.release else "",
        "licence": settings.DATA_LICENCE,
    }
    return render(request, "data.html", context)


@public_page
def correction_list(request: HttpRequest) -> HttpResponse:
    """List what was published and is not any more, or differs."""
    part = cut(list_corrections(timezone.now()), text_filters(request, ("start",))["start"])
    return render(request, "corrections.html", {"part": part})
