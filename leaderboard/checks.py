"""System checks: misconfiguration with an id and a hint."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Warning
from django.db import DatabaseError

ROLES = ("auditor", "approver", "operator")


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
    if settings.NOTIFY_WEBHOOK and not settings.NOTIFY_SECRET:
        found.append(Warning("the webhook is not signed", hint="set PROOFLINE_NOTIFY_SECRET", id="leaderboard.W003"))
    return found


def check_roles(app_configs: Any, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn when one person alone holds all three roles; runs with ``check --database default`` and on migrate."""
    if not databases or "default" not in databases:
        return []
    User = get_user_model()
    try:
        active = User.objects.filter(is_active=True, is_superuser=False)
        holders = {role: set(active.filter(groups__name=role).values_list("username", flat=True)) for role in ROLES}
    except DatabaseError:
        return []
    alone = holders[ROLES[0]] & holders[ROLES[1]] & holders[ROLES[2]]
    return [
        Warning(
            f"{name} holds all three roles ({', '.join(ROLES)})",
            hint="give auditing and approving to different persons",
            id="leaderboard.W004",
        )
        for name in sorted(alone)
    ]
