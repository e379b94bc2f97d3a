"""Writing routes: bundles of runs, and audits. They need a token with the right scope; no token can approve."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.security import HttpBearer
from pydantic import Field

from leaderboard import tokens, uploads
from leaderboard.api import params
from leaderboard.api.answers import writing
from leaderboard.api.catalogue_schemas import UploadReport
from leaderboard.errors import ApiProblem
from leaderboard.models import ApiToken
from leaderboard.uploads import Order, Outcome, UploadError

BUNDLE_TYPES = ("application/zip", "application/gzip", "application/x-gzip", "application/x-tar+gzip")
AUDIT_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
router = Router()


class TokenScope(HttpBearer):
    """A token that has a scope; whatever is wrong with it, the answer is the same."""

    def __init__(self, scope: ApiToken.Scope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> ApiToken | None:
        """Return the token that the guard found, if it has the scope."""
        token: ApiToken | None = request.api_token  # type: ignore[attr-defined]
        return token if token is not None and self.scope in token.scopes else None

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """Do nothing: `__call__` decides."""
        return None


class UploadQuery(params.Query):
    """Parameters of an upload."""

    deck: params.Deck | None = Field(None, description="deck of all runs of the bundle, whatever their paths say")
    gpu: params.Gpu | None = Field(None, description="GPU of all runs of the bundle, whatever their paths say")
    dry_run: params.Flag = Field(False, description="report what would happen and store nothing")


class AuditQuery(params.Query):
    """Parameters of an audit."""

    deck: params.Deck = Field(description="deck of the run that it judges")
    file: params.FileName | None = Field(None, description="file name; one that is a run id names the run")
    dry_run: params.Flag = Field(False, description="report what would happen and store nothing")


def _body(types: tuple[str, ...], what: str) -> dict[str, Any]:
    schema = {"type": "string", "contentMediaType": "application/octet-stream"}
    content = {name: {"schema": dict(schema)} for name in types}
    return {"requestBody": {"required": True, "description": what, "content": content}}


@router.post(
    "/runs",
    summary="Upload runs",
    operation_id="upload_runs",
    auth=TokenScope(ApiToken.Scope.INGEST),
    response=writing(UploadReport),
    openapi_extra=_body(BUNDLE_TYPES, "a .zip or .tar.gz bundle of run directories"),
)
def upload_runs(request: HttpRequest, query: Query[UploadQuery]) -> HttpResponse:
    """Store a bundle whole (201), or say that all of it is held (200); with ``dry_run`` only report (200)."""
    _check_type(request, BUNDLE_TYPES)
    order = _order(request, query)
    try:
        with uploads.receive(request) as path:
            outcome = uploads.store_bundle(path, order)
    except UploadError as error:
        raise ApiProblem(error.code, error.message, errors=error.parts) from error
    return _answer(outcome, order)


@router.post(
    "/audits",
    summary="Upload an audit",
    operation_id="upload_audit",
    auth=TokenScope(ApiToken.Scope.AUDIT),
    response=writing(UploadReport),
    openapi_extra=_body(AUDIT_TYPES, "one audit as YAML"),
)
def upload_audit(request: HttpRequest, query: Query[AuditQuery]) -> HttpResponse:
    """Store an audit (201), or say that the same file is held (200); with ``dry_run`` only report (200)."""
    _check_type(request, AUDIT_TYPES)
    order = _order(request, query)
    try:
        outcome = uploads.store_audit(uploads.read_audit_body(request), query.file, order)
    except UploadError as error:
        raise ApiProblem(error.code, error.message, errors=error.parts) from error
    return _answer(outcome, order)


def _check_type(request: HttpRequest, accepted: tuple[str, ...]) -> None:
    given = (request.content_type or "").lower()
    if given not in accepted:
        raise ApiProblem("unsupported_type", f"content type is {given[:60]!r}; accepted are {', '.join(accepted)}")


def _order(request: HttpRequest, query: Any) -> Order:
    token: ApiToken = request.api_token  # type: ignore[attr-defined]
    at = request.moment  # type: ignore[attr-defined]
    tokens.mark_used(token, at)
    return Order(
        uploader=token.owner,
        at=at,
        deck=query.deck,
        gpu=getattr(query, "gpu", None),
        is_dry_run=query.dry_run,
        allows_audits=ApiToken.Scope.AUDIT in token.scopes,
    )


def _answer(outcome: Outcome, order: Order) -> HttpResponse:
    data = {"is_dry_run": order.is_dry_run, "runs": outcome.runs, "audits": outcome.audits}
    status = 201 if outcome.is_new and not order.is_dry_run else 200
    return HttpResponse(orjson.dumps(data), status=status, content_type="application/json")
