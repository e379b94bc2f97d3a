"""What every public page is wrapped in: GET and HEAD only, validators, and a memory of pages that strangers asked for.

A page is remembered under the token of the public state, which is read on every request before the memory is asked:
a withdrawal, an ingest or an expired exception gives another token, so no page outlives what it shows. Readers with a
session get their own page, never a remembered one.
"""

import gzip
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from leaderboard.boards.state import State, holding, read_state
from leaderboard.conditional import add_validators, make_etag, matches, not_modified

View = Callable[..., HttpResponse]
MAX_BYTES = 32 * 1024 * 1024
_LEAST = 1024


@dataclass(frozen=True, slots=True)
class _Page:
    content: bytes
    packed: bytes
    kind: str


class PageMemory:
    """Rendered pages by validator, the least recently asked for dropped first."""

    def __init__(self, max_bytes: int) -> None:
        self._max, self._held, self._lock = max_bytes, 0, threading.Lock()
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    def find(self, etag: str) -> _Page | None:
        """Return a remembered page."""
        with self._lock:
            if etag in self._pages:
                self._pages.move_to_end(etag)
            return self._pages.get(etag)

    def keep(self, etag: str, page: _Page) -> None:
        """Remember a page."""
        with self._lock:
            self._held += _size(page) - (_size(self._pages[etag]) if etag in self._pages else 0)
            self._pages[etag] = page
            while self._held > self._max and self._pages:
                self._held -= _size(self._pages.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all pages."""
        with self._lock:
            self._pages.clear()
            self._held = 0


memory = PageMemory(MAX_BYTES)


def public_page(view: View) -> View:
    """Wrap a page of the public site."""

    @require_safe
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            return view(request, *args, **kwargs)
        now = timezone.now()
        state = read_state(now)
        etag = make_etag(request, state)
        if matches(request, etag, state, now):
            return _finish(not_modified(), etag, state)
        page = memory.find(etag)
        if page is None:
            with holding(state):
                answer = view(request, *args, **kwargs)
            if answer.status_code != 200 or answer.streaming or "Content-Disposition" in answer:
                return answer
            page = _Page(answer.content, gzip.compress(answer.content, 5, mtime=0), answer["Content-Type"])
            memory.keep(etag, page)
        return _finish(_write(request, page), etag, state)

    return respond  # type: ignore[return-value]


def _write(request: HttpRequest, page: _Page) -> HttpResponse:
    """Return a page, compressed where the reader takes that: public pages hold no secret that sizes could tell."""
    takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    is_packed = takes_gzip and len(page.content) > _LEAST and not page.kind.startswith("image/png")
    response = HttpResponse(page.packed if is_packed else page.content, content_type=page.kind)
    if is_packed:
        response["Content-Encoding"] = "gzip"
    return response


def _finish(response: HttpResponse, etag: str, state: State) -> HttpResponseBase:
    patch_vary_headers(response, ("Accept-Encoding", "Cookie"))
    done = add_validators(response, etag, state, timezone.now())
    done["ETag"] = f"W/{etag}"
    return done


def _size(page: _Page) -> int:
    return len(page.content) + len(page.packed)
