"""What every page's frame shows: the site's name and version, and the latest release."""

import re
from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from leaderboard.boards import latest_release

NAME = "Proofline"
TAGLINE = "the GPU kernel leaderboard that checks its own numbers"
_HEADING = re.compile(r"^##? +\[?v?(\d[\w.+-]*)", re.MULTILINE)


@cache
def version() -> str:
    """Return the version in the changelog's first heading, or an empty text where there is none."""
    path = settings.BASE_DIR / "CHANGELOG.md"
    match = _HEADING.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return match.group(1) if match else ""


def site(request: HttpRequest) -> dict[str, Any]:
    """Return the frame's variables; the release is read only where a template uses it and the view has not read it.

    A view that has the latest release at hand leaves it on the request as ``latest_release``.
    """
    return {
        "site": {
            "name": NAME,
            "tagline": TAGLINE,
            "version": version(),
            "url": settings.SITE_URL,
            "canonical": f"{settings.SITE_URL}{request.path}",
            "release": SimpleLazyObject(lambda: getattr(request, "latest_release", None) or latest_release()),
        }
    }
