"""Ready answers, and what every reading route asks first."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from leaderboard import boards
from leaderboard.api.schemas import Problem
from leaderboard.boards.state import State
from leaderboard.errors import ApiProblem
from leaderboard.memory import Snapshot, find_snapshot, read_snapshot
from leaderboard.models import Release

_READ = (404, 405, 422, 429, 500, 503)
_ASK = (401, 403, 404, 405, 409, 422, 429, 500, 503)
_WRITE = (400, 401, 403, 405, 409, 411, 413, 415, 422, 429, 500, 503)


def reading(schema: Any) -> dict[int, Any]:
    """Return the answers of a reading route, for OpenAPI."""
    return {200: schema, 304: None, **dict.fromkeys(_READ, Problem)}


def writing(schema: Any) -> dict[int, Any]:
    """Return the answers of a writing route, for OpenAPI."""
    return {200: schema, 201: schema, **dict.fromkeys(_WRITE, Problem)}


def asking(*statuses: int, schema: Any) -> dict[int, Any]:
    """Return the answers of a route that asks for something or takes it back, for OpenAPI."""
    return {**dict.fromkeys(statuses, schema), **dict.fromkeys(_ASK, Problem)}


def answer(data: Any, total: int | None = None) -> HttpResponse:
    """Return data as JSON."""
    response = HttpResponse(orjson.dumps(data), content_type="application/json")
    if total is not None:
        response["X-Total-Count"] = str(total)
    return response


def answer_page(
    request: HttpRequest, head: dict[str, Any], rows: Sequence[bytes], following: str | None
) -> HttpResponse:
    """Return one page of a list: ``head``, the rows as they are, and where the next page is, in body and header."""
    parts = orjson.dumps(head)[:-1], b',"results":[', b",".join(rows), b'],"next":', orjson.dumps(following), b"}"
    response = HttpResponse(b"".join(parts), content_type="application/json")
    response["X-Total-Count"] = str(head["count"])
    if following is not None:
        query = urlencode({**request.GET.dict(), "cursor": following})
        response["Link"] = f'<{request.path}?{query}>; rel="next"'
    return response


def answer_stream(chunks: Iterator[bytes], content_type: str, filename: str) -> StreamingHttpResponse:
    """Return a download that is made while it is sent."""
    response = StreamingHttpResponse(chunks, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def find_release(number: int | None) -> Release | None:
    """Return the release asked for, or the latest one. Raises ApiProblem for a number that does not exist."""
    if not number:
        return boards.latest_release()
    release = Release.objects.filter(number=number).first()
    if release is None:
        raise ApiProblem("unknown_release", f"release {number} does not exist", "release")
    return release


def snapshot_of(request: HttpRequest, number: int | None) -> Snapshot:
    """Return the cells of a release in the state that the request is answered in; no query where they are in memory."""
    state: State = request.public_state  # type: ignore[attr-defined]
    held = find_snapshot(state, number or state.release)
    return held or read_snapshot(state, find_release(number), request.moment)  # type: ignore[attr-defined]


def pick(data: dict[str, Any], fields: Iterable[str] | None) -> bytes:
    """Return an object as JSON, with only the chosen fields where some are."""
    return orjson.dumps({name: data[name] for name in fields} if fields else data)
