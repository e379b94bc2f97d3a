"""What surrounds every route: methods, limits, validators, caching and cross-origin headers."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from leaderboard import errors, limits, tokens
from leaderboard.boards.state import read_state
from leaderboard.conditional import add_validators, make_etag, matches, not_modified, without_body
from leaderboard.errors import ApiProblem

View = Callable[..., HttpResponseBase]
_SAFE = ("GET", "HEAD", "OPTIONS")
_EXPOSED = (
    "ETag, Last-Modified, Link, X-Total-Count, Content-Disposition, Repr-Digest, Retry-After, "
    "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
)


def guard(view: View, methods: Mapping[str, frozenset[str]]) -> View:
    """Return the view of one path with everything that all paths share.

    methods  the accepted query parameters by method
    """
    allowed = [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = _respond(request, view, methods, (args, kwargs))
        except ApiProblem as problem:
            response = errors.answer_problem(problem)
        except (OperationalError, InterfaceError) as error:
            response = errors.handle_outage(request, error)
        if response.status_code == 405 or request.method == "OPTIONS":
            response["Allow"] = ", ".join(allowed)
        if request.method in _SAFE and "GET" in methods:
            allow_reading(response)
        return response

    respond.csrf_exempt = True  # type: ignore[attr-defined]
    return respond


def allow_reading(response: HttpResponseBase) -> None:
    """Let pages of any other site read an answer."""
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = _EXPOSED


def _respond(
    request: HttpRequest,
    view: View,
    methods: Mapping[str, frozenset[str]],
    given: tuple[tuple[Any, ...], dict[str, Any]],
) -> HttpResponseBase:
    method = "GET" if request.method == "HEAD" else str(request.method)
    if method == "OPTIONS":
        return _answer_preflight(methods)
    if method not in methods:
        raise ApiProblem("method_not_allowed", f"{method} is not possible here; {', '.join(methods)} is")
    allowance = spend(request, method)
    if allowance is not None and allowance.is_exceeded:
        problem = ApiProblem(
            "rate_limited", f"the limit of {allowance.bucket.quota} requests is used up; try again later"
        )
        response: HttpResponseBase = errors.answer_problem(problem)
    else:
        response = _call(request, view, methods[method], given)
    if allowance is not None:
        allowance.write_headers(response)
    return response


def _answer_preflight(methods: Mapping[str, frozenset[str]]) -> HttpResponse:
    response = HttpResponse(status=204)
    del response["Content-Type"]
    if "GET" in methods:
        response["Access-Control-Allow-Methods"] = ", ".join(_SAFE)
        response["Access-Control-Allow-Headers"] = "Authorization, If-None-Match, If-Modified-Since"
        response["Access-Control-Max-Age"] = "86400"
    return response


def spend(request: HttpRequest, method: str) -> limits.Allowance | None:
    """Count the request to its token, or to its address where it has none that counts."""
    token = tokens.find_token(request, timezone.now())
    request.api_token = token  # type: ignore[attr-defined]
    if method == "GET":
        chosen = limits.bucket("read")
    else:
        chosen = limits.bucket("upload", token.uploads_per_hour if token else None)
    return limits.spend(chosen, f"token-{token.pk}" if token else limits.address_of(request))


def _call(
    request: HttpRequest, view: View, accepted: frozenset[str], given: tuple[tuple[Any, ...], dict[str, Any]]
) -> HttpResponseBase:
    """Check the query, answer 304 without calling the view where that holds, else call it and add validators."""
    _check_query(request, accepted)
    args, kwargs = given
    now = timezone.now()
    request.moment = now  # type: ignore[attr-defined]
    if request.method not in ("GET", "HEAD"):
        response = view(request, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        return response
    state = read_state(now)
    request.public_state = state  # type: ignore[attr-defined]
    etag = make_etag(request, state)
    if matches(request, etag, state, now):
        return add_validators(not_modified(), etag, state, now)
    is_head, request.method = request.method == "HEAD", "GET"
    response = view(request, *args, **kwargs)
    if response.status_code == 200:
        add_validators(response, etag, state, now)
    if is_head:
        request.method = "HEAD"
        response = without_body(response)
    return response


def _check_query(request: HttpRequest, accepted: frozenset[str]) -> None:
    for name, values in request.GET.lists():
        if name not in accepted:
            known = ", ".join(sorted(accepted)) or "none"
            raise ApiProblem(
                "unknown_parameter", f"{name[:60]!r} is no parameter here; accepted are {known}", name[:60]
            )
        if len(values) > 1:
            raise ApiProblem("invalid_parameter", f"{name} is given {len(values)} times; need it once", name)
