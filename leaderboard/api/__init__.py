"""The API under ``/api/v1/``: reading is open, writing needs a token, problems are ``application/problem+json``."""

from functools import cache
from typing import Any

import orjson
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, path, re_path
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, ValidationError

from leaderboard import errors
from leaderboard.api import document, downloads, grading, reading, writing
from leaderboard.api.guard import Route, View, guard
from leaderboard.errors import ApiProblem

PREFIX = "/api/v1/"
_NOTHING: dict[str, frozenset[str]] = {"GET": frozenset()}


class GuardedAPI(NinjaAPI):
    """An API whose every path is guarded, also the ones that do not exist."""

    def _get_urls(self) -> list[URLPattern | URLResolver]:
        found: list[URLPattern | URLResolver] = [
            path("openapi.json", guard(Route(show_document, _NOTHING)), name="openapi-json"),
            path("docs", guard(Route(show_docs, _NOTHING)), name="docs"),
        ]
        for address, methods in self._routes().items():
            names = {method: accepted for method, (_, accepted, _) in methods.items()}
            views = {method: view for method, (view, _, _) in methods.items()}
            ids = [name for _, _, name in methods.values()]
            route = Route(_dispatch(views), names, is_live=not grading.LIVE.isdisjoint(ids))
            found.append(path(address, guard(route), name=ids[0]))
        found.append(re_path(r"^(?P<rest>.*)$", guard(Route(refuse_path, _NOTHING)), name="api-root"))
        return found

    def _routes(self) -> dict[str, dict[str, tuple[View, frozenset[str], str]]]:
        """Return the view, the query parameters and the name of each method of each route, over all routers."""
        routes: dict[str, dict[str, tuple[View, frozenset[str], str]]] = {}
        for router in self._get_bound_routers():
            views = {str(pattern.pattern): pattern.callback for pattern in router.urls_paths(router.prefix)}
            for route, view in zip(views, router.path_operations.values(), strict=True):
                for operation in view.operations:
                    for method in operation.methods:
                        entry = (views[route], _query_names(operation), str(operation.operation_id))
                        routes.setdefault(route, {})[method] = entry
        return routes


def _dispatch(views: dict[str, View]) -> View:
    """Return one view for all methods of a route; the guard lets no other method through."""

    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return views[str(request.method)](request, *args, **kwargs)

    return respond


def _query_names(operation: Any) -> frozenset[str]:
    """Return the names of the query parameters that an operation takes."""
    models = [model for model in operation.models if model.__ninja_param_source__ == "query"]
    return frozenset(name for model in models for name in model.__ninja_flatten_map__)


@cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    raw = orjson.dumps(api.get_openapi_schema(path_prefix=PREFIX), option=orjson.OPT_NON_STR_KEYS)
    return document.polish(orjson.loads(raw))


def show_document(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document."""
    return HttpResponse(orjson.dumps(openapi_document()), content_type="application/json")


def show_docs(request: HttpRequest) -> HttpResponse:
    """Show the document as a page without scripts."""
    shown = openapi_document()
    context = {"document": shown, "operations": document.list_operations(shown), "errors": errors.ERRORS}
    return render(request, "api_docs.html", context)


def refuse_path(request: HttpRequest, rest: str) -> HttpResponse:
    """Answer 404 in the API's own form."""
    hint = "; addresses end without a slash" if rest.endswith("/") else ""
    raise ApiProblem("not_found", f"there is no {PREFIX}{rest[:100]}{hint}; see {PREFIX}docs")


api = GuardedAPI(
    title="Proofline",
    version="1",
    description="Cells, runs and findings of the leaderboard. What is unknown or withheld is null, never 0.",
    urls_namespace="api",
    openapi_url=None,
    docs_url=None,
    servers=[{"url": settings.SITE_URL}],
    openapi_extra={"info": {"license": {"name": settings.DATA_LICENCE, "identifier": settings.DATA_LICENCE}}},
)
api.add_router("", downloads.router)
api.add_router("", reading.router)
api.add_router("", writing.router)
api.add_router("", grading.router)
api.add_exception_handler(ApiProblem, errors.handle_problem)
api.add_exception_handler(ValidationError, errors.handle_invalid)
api.add_exception_handler(AuthenticationError, errors.handle_unauthorized)
api.add_exception_handler(OperationalError, errors.handle_outage)
api.add_exception_handler(InterfaceError, errors.handle_outage)
api.add_exception_handler(Exception, errors.handle_bug)
