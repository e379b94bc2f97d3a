"""URL configuration: pages, the API, the administration."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from leaderboard.api import api
from leaderboard.pages import (
    about,
    boards,
    catalogue,
    charts,
    compare,
    files,
    live,
    publication,
    runs,
    service,
    styleguide,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.urls),
    path("", boards.home, name="home"),
    path("boards/<str:deck>/<str:gpu>/", boards.board, name="board"),
    path("boards/<str:deck>/<str:gpu>/card.png", charts.board_picture, name="board_card"),
    path("models/", catalogue.model_list, name="models"),
    path("models/<str:slug>/", catalogue.model, name="model"),
    path("problems/", catalogue.problem_list, name="problems"),
    path("problems/<str:deck>/<str:problem>/", catalogue.problem, name="problem"),
    path(
        "problems/<str:deck>/<str:problem>/<str:gpu>/<str:kind>.<str:ending>",
        charts.problem_chart,
        name="problem_chart",
    ),
    path("gpus/", live.gpu_list, name="gpus"),
    path("gpus/<str:key>/", live.gpu, name="gpu"),
    path("jobs/<int:job>/", live.job, name="job"),
    path("jobs/<int:job>/evidence.tar.gz", live.job_evidence, name="job_evidence"),
    path("runs/", runs.run_list, name="runs"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/", runs.run, name="run"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/card.png", charts.run_picture, name="run_card"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/shapes.<str:ending>", charts.run_chart, name="run_chart"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/files/<path:path>", files.run_file, name="run_file"),
    path("compare/", compare.compare, name="compare"),
    path("withheld/", publication.withheld, name="withheld"),
    path("corrections/", about.correction_list, name="correction_list"),
    path("data/", about.data, name="data"),
    path("releases/", publication.release_list, name="releases"),
    path("releases/<int:number>/", publication.release, name="release"),
    path("methodology/", publication.methodology, name="methodology"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
    path("healthz", service.healthz, name="healthz"),
    path("robots.txt", service.robots, name="robots"),
    path("offline/", service.offline, name="offline"),
    path("offline.js", service.offline_worker, name="offline_worker"),
    path("review/", include("leaderboard.review.urls")),
    path("admin/", admin.site.urls),
    path("", include("leaderboard.machine_urls")),
]
