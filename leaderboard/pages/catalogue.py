"""Models and problems."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.boards.baselines import list_baselines
from leaderboard.boards.language_models import list_models, read_model
from leaderboard.boards.problems import list_problems, read_problem
from leaderboard.boards.slices import cut
from leaderboard.pages.charts import charts_of
from leaderboard.pages.public import public_page
from leaderboard.pages.query import is_staff, text_filters


@public_page
def model_list(request: HttpRequest) -> HttpResponse:
    """List the models with results."""
    return render(request, "models.html", {"models": list_models(timezone.now())})


@public_page
def model(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one model's passport."""
    found = read_model(slug, timezone.now(), is_staff=is_staff(request))
    if found is None:
        raise Http404("no such model, or nothing about it is public")
    return render(request, "model.html", {"model": found})


@public_page
def problem_list(request: HttpRequest) -> HttpResponse:
    """List the problems of every deck."""
    return render(request, "problems.html", {"decks": list_problems(timezone.now())})


@public_page
def problem(request: HttpRequest, deck: str, problem: str) -> HttpResponse:
    """Show one problem: what is asked, its shapes and floors, and its standings."""
    found = read_problem(deck, problem, timezone.now())
    if found is None:
        raise Http404("no such problem")
    start = text_filters(request, ("start",))["start"]
    sections = [
        {
            "standing": standing,
            "part": cut([*standing.ranked, *standing.others], start),
            "baselines": list_baselines(standing),
            "charts": charts_of(found, standing).items(),
        }
        for standing in found.standings
    ]
    return render(request, "problem.html", {"view": found, "problem": found.problem, "sections": sections})
