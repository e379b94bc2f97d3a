"""Unchanged answers before everything else: no route is found, no session opened and no row read for them."""

from collections.abc import Callable

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from leaderboard.api.guard import allow_reading, spend
from leaderboard.boards.state import read_state
from leaderboard.conditional import add_validators, make_etag, matches, not_modified

PREFIX = "/api/v1/"
GetResponse = Callable[[HttpRequest], HttpResponseBase]


def unchanged_first(get_response: GetResponse) -> GetResponse:
    """Answer 304 to whoever presents the validator of what it asks for.

    A validator is made of the state and the whole address, and only a 200 ever carried it: an address that presents
    the one of today was answered before in this very state, so its route and its parameters need no second look. The
    rate limit counts it all the same. Everything else goes the usual way, which says what is wrong.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        return (_answer(request) if _is_asked(request) else None) or get_response(request)

    return respond


def _is_asked(request: HttpRequest) -> bool:
    """Tell whether a request may be answered here: a conditional reading of the API by nobody who is signed in."""
    asked = request.META
    return (
        request.method in ("GET", "HEAD")
        and "HTTP_IF_NONE_MATCH" in asked
        and request.path_info.startswith(PREFIX)
        and settings.SESSION_COOKIE_NAME not in asked.get("HTTP_COOKIE", "")
    )


def _answer(request: HttpRequest) -> HttpResponseBase | None:
    request.get_host()
    now = timezone.now()
    try:
        state = read_state(now)
        etag = make_etag(request, state)
        if not matches(request, etag, state, now):
            return None
        allowance = spend(request, "GET")
    except (OperationalError, InterfaceError):
        return None
    if allowance is not None and allowance.is_exceeded:
        return None
    response = add_validators(not_modified(), etag, state, now)
    allow_reading(response)
    if allowance is not None:
        allowance.write_headers(response)
    return response
