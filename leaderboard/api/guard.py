"""What surrounds every route: methods, limits, validators, caching and cross-origin headers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_vary_headers

from leaderboard import errors, limits, tokens
from leaderboard.boards.state import read_state
from leaderboard.conditional import add_validators, answer_digest, make_etag, matches, not_modified, without_body
from leaderboard.errors import ApiProblem

View = Callable[..., HttpResponseBase]
_SAFE = ("GET", "HEAD", "OPTIONS")
_EXPOSED = (
    "ETag, Last-Modified, Link, X-Total-Count, Content-Disposition, Repr-Digest, Retry-After, "
    "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
)


@dataclass(frozen=True, slots=True)
class Route:
    """One path.

    methods  the accepted query parameters by method
    is_live  whether what GET answers changes without a decision, and with whom the token is
    """

    view: View
    methods: Mapping[str, frozenset[str]]
    is_live: bool = False


def guard(route: Route) -> View:
    """Return the view of one path with everything that all paths share."""
    allowed = [*route.methods, *(["HEAD"] if "GET" in route.methods else []), "OPTIONS"]

    @wraps(route.view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = _respond(request, route, (args, kwargs))
        except ApiProblem as problem:
            response = errors.answer_problem(problem)
        except (OperationalError, InterfaceError) as error:
            response = errors.handle_outage(request, error)
        if response.status_code == 405 or request.method == "OPTIONS":
            response["Allow"] = ", ".join(allowed)
        if request.method in _SAFE and "GET" in route.methods:
            allow_reading(response)
        return response

    respond.csrf_exempt = True  # type: ignore[attr-defined]
    return respond


def allow_reading(response: HttpResponseBase) -> None:
    """Let pages of any other site read an answer."""
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = _EXPOSED


def _respond(request: HttpRequest, route: Route, given: tuple[tuple[Any, ...], dict[str, Any]]) -> HttpResponseBase:
    methods = route.methods
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
        _check_query(request, methods[method])
        response = _call(request, route, given)
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


def _call(request: HttpRequest, route: Route, given: tuple[tuple[Any, ...], dict[str, Any]]) -> HttpResponseBase:
    """Answer 304 without calling the view where that holds, else call it and add validators."""
    now = timezone.now()
    request.moment = now  # type: ignore[attr-defined]
    if request.method not in ("GET", "HEAD"):
        response = route.view(request, *given[0], **given[1])
        response["Cache-Control"] = "no-store"
        return response
    if route.is_live:
        return _call_live(request, route.view, given)
    state = read_state(now)
    request.public_state = state  # type: ignore[attr-defined]
    etag = make_etag(request, state)
    if matches(request, etag, state, now):
        return add_validators(not_modified(), etag, state, now)
    response = _read(request, route.view, given)
    if response.status_code == 200:
        add_validators(response, etag, state, now)
    return without_body(response) if request.method == "HEAD" else response


def _call_live(request: HttpRequest, view: View, given: tuple[tuple[Any, ...], dict[str, Any]]) -> HttpResponseBase:
    """Call a view whose answer depends on more than the public state; its validator is a digest of what it says."""
    answer = _read(request, view, given)
    assert isinstance(answer, HttpResponse)
    response = answer_digest(request, answer) if answer.status_code == 200 else answer
    patch_vary_headers(response, ["Authorization"])
    return without_body(response) if request.method == "HEAD" else response


def _read(request: HttpRequest, view: View, given: tuple[tuple[Any, ...], dict[str, Any]]) -> HttpResponseBase:
    """Call a view that knows GET only."""
    method, request.method = request.method, "GET"
    try:
        return view(request, *given[0], **given[1])
    finally:
        request.method = method


def _check_query(request: HttpRequest, accepted: frozenset[str]) -> None:
    for name, values in request.GET.lists():
        if name not in accepted:
            known = ", ".join(sorted(accepted)) or "none"
            raise ApiProblem(
                "unknown_parameter", f"{name[:60]!r} is no parameter here; accepted are {known}", name[:60]
            )
        if len(values) > 1:
            raise ApiProblem("invalid_parameter", f"{name} is given {len(values)} times; need it once", name)
