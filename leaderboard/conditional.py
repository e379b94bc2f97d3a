"""Conditional requests for everything that machines fetch: validators made from the state of the public site.

Nothing that may hold a score is ever cacheable without asking again: a release's score can be withdrawn at any moment,
also in an old release. So answers may be stored but must be revalidated, which costs one small answer.
"""

import datetime
import hashlib
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.http import http_date, parse_etags, parse_http_date_safe

from leaderboard.boards.state import State, read_state
from leaderboard.errors import ApiProblem, answer_problem, handle_outage

View = Callable[..., HttpResponseBase]
_CALENDAR_SECOND = datetime.timedelta(seconds=1)


def make_etag(request: HttpRequest, state: State) -> str:
    """Return the strong validator of one address in one state."""
    text = f"{state.token} {request.get_full_path()}"
    return f'"{hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def matches(request: HttpRequest, etag: str, state: State, now: datetime.datetime) -> bool:
    """Tell whether the client already has this answer."""
    given = request.META.get("HTTP_IF_NONE_MATCH")
    if given is not None:
        return any(known.removeprefix("W/") == etag for known in parse_etags(given))
    since = parse_http_date_safe(request.headers.get("If-Modified-Since", ""))
    return since is not None and is_dated(state, now) and since >= int(state.changed_at.timestamp())


def is_dated(state: State, now: datetime.datetime) -> bool:
    """Tell whether a date of whole seconds names the state: not while the second of its last change still runs."""
    return now - state.changed_at.replace(microsecond=0) >= _CALENDAR_SECOND


def not_modified() -> HttpResponse:
    """Return an empty 304."""
    response = HttpResponse(status=304)
    del response["Content-Type"]
    return response


def add_validators(response: HttpResponseBase, etag: str, state: State, now: datetime.datetime) -> HttpResponseBase:
    """Add ETag, Last-Modified and Cache-Control."""
    response["ETag"] = etag
    if is_dated(state, now):
        response["Last-Modified"] = http_date(state.changed_at.timestamp())
    elif response.has_header("Last-Modified"):
        del response["Last-Modified"]
    shared = settings.SHARED_CACHE_SECONDS
    response["Cache-Control"] = (
        f"public, max-age=0, s-maxage={shared}, must-revalidate" if shared else "public, no-cache"
    )
    return response


def answer_digest(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Give an answer that changes without a decision a validator of what it says; 304 where the client has it."""
    etag = f'"{hashlib.sha256(answer.content).hexdigest()[:32]}"'
    given = [known.removeprefix("W/") for known in parse_etags(request.headers.get("If-None-Match", ""))]
    response = not_modified() if etag in given else answer
    response["ETag"], response["Cache-Control"] = f"W/{etag}", "private, no-cache"
    return response


def without_body(response: HttpResponseBase) -> HttpResponseBase:
    """Return the answer to HEAD: the answer to GET with its headers, emptied; what it holds open is closed with it."""
    if response.streaming:
        response.streaming_content = iter(())  # type: ignore[attr-defined]
    else:
        response["Content-Length"] = str(len(response.content))  # type: ignore[attr-defined]
        response.content = b""  # type: ignore[attr-defined]
    return response


def conditional(view: View) -> View:
    """Give a public view outside the API its validators, GET and HEAD only, and cross-origin reading.

    What is missing, and a database that does not answer, are told as in the API. The view finds
    `request.public_state` and `request.moment`.
    """

    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in ("GET", "HEAD"):
            refused = HttpResponse("only GET and HEAD\n", status=405, content_type="text/plain; charset=utf-8")
            refused["Allow"] = "GET, HEAD"
            return refused
        try:
            response = _answer(request, view, args, kwargs)
        except Http404 as missing:
            response = answer_problem(ApiProblem("not_found", str(missing)))
        except (OperationalError, InterfaceError) as error:
            response = handle_outage(request, error)
        response["Access-Control-Allow-Origin"] = "*"
        return without_body(response) if request.method == "HEAD" else response

    return respond


def _answer(request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HttpResponseBase:
    now = timezone.now()
    state = read_state(now)
    request.public_state, request.moment = state, now  # type: ignore[attr-defined]
    etag = make_etag(request, state)
    response = not_modified() if matches(request, etag, state, now) else view(request, *args, **kwargs)
    return add_validators(response, etag, state, now) if response.status_code in (200, 304) else response
