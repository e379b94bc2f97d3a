"""Answers for machines and browsers that no reader looks at."""

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
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


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """Show what a reader sees when the site cannot be reached; it says nothing that could become untrue."""
    return render(request, "offline.html")


@require_safe
def offline_worker(request: HttpRequest) -> HttpResponse:
    """Return the service worker that keeps the offline page. A worker may serve only what lies beside or below it."""
    script = (settings.BASE_DIR / "static" / "js" / "offline.js").read_bytes()
    response = HttpResponse(script, content_type="text/javascript; charset=utf-8")
    response["Cache-Control"] = "no-cache"
    return response
