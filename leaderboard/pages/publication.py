"""What is not a result and why, releases, and the method."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.boards.method import list_rules, read_method
from leaderboard.boards.releases import list_releases, read_release
from leaderboard.boards.slices import cut
from leaderboard.boards.withheld import read_withheld
from leaderboard.datasets import describe
from leaderboard.pages.public import public_page
from leaderboard.pages.query import text_filters, whole_number


@public_page
def withheld(request: HttpRequest) -> HttpResponse:
    """List every cell whose score is not shown, with its reasons."""
    filters = text_filters(request, ("board", "reason", "status", "start"))
    view = read_withheld(filters, timezone.now())
    context = {"view": view, "part": cut(view.cells, filters["start"]), "filters": filters}
    return render(request, "withheld.html", context)


@public_page
def release_list(request: HttpRequest) -> HttpResponse:
    """List the releases."""
    return render(request, "releases.html", {"releases": list_releases()})


@public_page
def release(request: HttpRequest, number: int) -> HttpResponse:
    """Show one release and what it changed."""
    filters = text_filters(request, ("start", "against"))
    against = whole_number(filters["against"])
    found = read_release(number, timezone.now(), against) if max(number, against or 0) < 2**31 else None
    if found is None:
        raise Http404("no such release")
    part = cut(found.changes, filters["start"])
    context = {"view": found, "release": found.release, "part": part, "dataset": describe(found.release)}
    return render(request, "release.html", context)


@public_page
def methodology(request: HttpRequest) -> HttpResponse:
    """Show the rules and how scores are made."""
    return render(request, "methodology.html", {"rules": list_rules(), "method": read_method()})
