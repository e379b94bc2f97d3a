"""Who may use the desk: signed-in staff with a role. To everyone else it does not exist."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache

DECIDE, WRITE_AUDIT, INGEST = "leaderboard.decide", "leaderboard.write_audit", "leaderboard.ingest"
ROLES = {DECIDE: "approver", WRITE_AUDIT: "auditor", INGEST: "operator"}
View = Callable[..., HttpResponse]


def has_desk(user: User | AnonymousUser) -> bool:
    """Tell whether a person has a place at the desk."""
    return user.is_active and user.is_staff and any(user.has_perm(name) for name in ROLES)


def desk_view(needs: str | None = None) -> Callable[[View], View]:
    """Open a view to the desk's people only; ``needs`` names a permission that not all of them have."""

    def decorate(view: View) -> View:
        @wraps(view)
        @never_cache
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            if not has_desk(request.user):
                raise Http404("no such page")
            if needs is not None and not request.user.has_perm(needs):
                raise PermissionDenied(f"this needs the role {ROLES[needs]}")
            return view(request, *args, **kwargs)

        return respond

    return decorate


def person_name(user: User) -> str:
    """Return the name under which a person signs audits."""
    return user.get_full_name() or user.get_username()
