"""What can go wrong, as RFC 9457 documents with a stable code; nothing else than these codes is ever answered."""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from ninja.errors import AuthenticationError, ValidationError

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A code with its HTTP status and what it means."""

    status: int
    title: str


ERRORS = {
    "bad_request": ErrorKind(400, "The request cannot be read"),
    "unauthorized": ErrorKind(401, "No token that may do this"),
    "insufficient_scope": ErrorKind(403, "The token may not do all of this"),
    "not_yours": ErrorKind(403, "Somebody else asked for it"),
    "not_found": ErrorKind(404, "No such resource"),
    "unknown_release": ErrorKind(404, "No such release"),
    "unknown_cell": ErrorKind(404, "No such cell"),
    "unknown_run": ErrorKind(404, "No such run, or not public"),
    "unknown_job": ErrorKind(404, "No such grade, or not public"),
    "method_not_allowed": ErrorKind(405, "Another method is needed"),
    "conflict": ErrorKind(409, "Already held with other content"),
    "not_gradable": ErrorKind(409, "The run cannot be graded"),
    "not_waiting": ErrorKind(409, "The grade does not wait any more"),
    "length_required": ErrorKind(411, "The body's length is not given"),
    "too_large": ErrorKind(413, "The body is too large"),
    "unsupported_type": ErrorKind(415, "Another content type is needed"),
    "invalid_parameter": ErrorKind(422, "A parameter cannot be used"),
    "unknown_parameter": ErrorKind(422, "No such parameter"),
    "bad_bundle": ErrorKind(422, "The bundle cannot be taken"),
    "bad_audit": ErrorKind(422, "The audit cannot be taken"),
    "rate_limited": ErrorKind(429, "Too many requests"),
    "internal_error": ErrorKind(500, "Internal error"),
    "unavailable": ErrorKind(503, "Not available at the moment"),
}


class ApiProblem(Exception):
    """An answer that is not the one asked for: a code of `ERRORS`, a sentence, the parameter, the parts at fault."""

    def __init__(
        self, code: str, detail: str, field: str | None = None, errors: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.field, self.errors = code, detail, field, tuple(errors)


def answer_problem(problem: ApiProblem) -> HttpResponse:
    """Return the document of a problem."""
    kind = ERRORS[problem.code]
    body = {
        "type": f"{settings.SITE_URL}/api/v1/docs#error-{problem.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "code": problem.code,
        "field": problem.field,
        "errors": [{"path": path, "message": message} for path, message in problem.errors],
    }
    response = HttpResponse(orjson.dumps(body), status=kind.status, content_type=MEDIA_TYPE)
    response["Cache-Control"] = "no-store"
    if kind.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="proofline"'
    return response


def handle_problem(request: HttpRequest, problem: ApiProblem) -> HttpResponse:
    """Answer a problem that a route raised."""
    return answer_problem(problem)


def handle_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Name the first parameter that cannot be used."""
    first: dict[str, Any] = error.errors[0] if error.errors else {"loc": ["request"], "msg": "invalid"}
    field = str(first["loc"][-1])
    message = str(first["msg"]).removeprefix("Value error, ")
    return answer_problem(ApiProblem("invalid_parameter", f"{field}: {message}", field))


def handle_unauthorized(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    """Say the same whether the token is absent, unknown, expired, revoked, or lacks the scope."""
    return answer_problem(
        ApiProblem("unauthorized", "this needs a token with the right scope: Authorization: Bearer pl_…")
    )


def handle_outage(request: HttpRequest, error: OperationalError | InterfaceError) -> HttpResponse:
    """Say that the database does not answer, and nothing about it."""
    name = _log_bug(error)
    response = answer_problem(ApiProblem("unavailable", f"the database does not answer; error {name}"))
    response["Retry-After"] = "30"
    return response


def handle_bug(request: HttpRequest, error: Exception) -> HttpResponse:
    """Log a bug under an id and show only that id."""
    return answer_problem(ApiProblem("internal_error", f"internal error {_log_bug(error)}"))


def _log_bug(error: Exception) -> str:
    name = uuid.uuid4().hex[:12]
    log.error("internal error %s", name, exc_info=error)
    return name
