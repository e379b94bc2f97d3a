"""Answers for machines and browsers that no reader looks at."""

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from leaderboard.boards import latest_release

ROBOTS = """User-agent: *
Disallow: /admin/
Disallow: /review/
Disallow: /runs/*/files/
"""


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Say whether the database answers, and which release is shown."""
    try:
        release = latest_release()
    except DatabaseError:
        return JsonResponse({"status": "error", "database": "unreachable", "release": None}, status=503)
    response = JsonResponse({"status": "ok", "database": "ok", "release": release.number if release else None})
    response["Cache-Control"] = "no-store"
    return response


@require_safe
def robots(request: HttpRequest) -> HttpResponse:
    """Keep crawlers out of the staff's pages and raw files."""
    return HttpResponse(
        f"{ROBOTS}\nSitemap: {settings.SITE_URL}/sitemap.xml\n", content_type="text/plain; charset=utf-8"
    )
