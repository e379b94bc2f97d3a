"""Addresses for machines outside the API: feeds, badges, charts, oEmbed, sitemap, llms.txt, and pages as JSON."""

from django.urls import URLPattern, path

from leaderboard import feeds, machine_views, twins
from leaderboard.conditional import View, conditional
from leaderboard.pages.live import live_data

_TWINS: dict[str, View] = {
    "boards/<str:deck>/<str:gpu>": twins.board,
    "models": twins.model_list,
    "models/<str:slug>": twins.model,
    "problems": twins.problem_list,
    "problems/<str:deck>/<str:problem>": twins.problem,
    "runs": twins.run_list,
    "runs/<str:deck>/<str:gpu>/<str:run_id>": twins.run,
    "withheld": twins.withheld,
    "releases": twins.release_list,
    "releases/<int:number>": twins.release,
    "methodology": twins.methodology,
    "compare": twins.compare,
    "corrections": twins.correction_list,
    "data": twins.data,
}

_LIVE: dict[str, View] = {
    "gpus": twins.gpu_list,
    "gpus/<str:key>": twins.gpu,
    "jobs/<int:job>": twins.job,
}


def _twins() -> list[URLPattern]:
    """Return the addresses of the pages' data: the page's own with ``.json`` after it, slash or no slash."""
    found = [path(".json", conditional(twins.home)), path("index.json", conditional(twins.home), name="home_json")]
    wrapped = [(route, view, conditional) for route, view in _TWINS.items()]
    wrapped += [(route, view, live_data) for route, view in _LIVE.items()]
    for route, view, wrap in wrapped:
        found.append(path(f"{route}.json", wrap(view), name=f"{view.__name__}_json"))
        found.append(path(f"{route}/.json", wrap(view)))
    return found


urlpatterns: list[URLPattern] = [
    path("feed.xml", conditional(feeds.ReleaseFeed()), name="feed"),
    path("corrections.xml", conditional(feeds.CorrectionFeed()), name="corrections"),
    path("models/<str:slug>/feed.xml", conditional(feeds.ModelFeed()), name="model_feed"),
    path("problems/<str:deck>/<str:problem>/feed.xml", conditional(feeds.ProblemFeed()), name="problem_feed"),
    path("badge/<str:cell>.svg", conditional(machine_views.badge), name="badge"),
    path("badge/<str:cell>.json", conditional(machine_views.badge_data), name="badge_data"),
    path("chart/<str:deck>/<str:gpu>/<str:problem>.svg", conditional(machine_views.chart), name="chart"),
    path("oembed", conditional(machine_views.oembed), name="oembed"),
    path("sitemap.xml", conditional(machine_views.sitemap), name="sitemap"),
    path("llms.txt", conditional(machine_views.llms), name="llms"),
    *_twins(),
]
