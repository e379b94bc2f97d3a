"""System checks: misconfiguration with an id and a hint."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Return warnings for settings that weaken what the site promises."""
    found: list[CheckMessage] = []
    if not settings.TWO_PERSON_RULE:
        found.append(
            Warning(
                "one person may audit and approve the same run",
                hint="unset PROOFLINE_TWO_PERSON_RULE to require two persons per cell",
                id="leaderboard.W001",
            )
        )
    if settings.DEBUG and settings.IS_HTTPS:
        found.append(
            Warning("debug pages are on for a public address", hint="unset PROOFLINE_DEBUG", id="leaderboard.W002")
        )
    return found
