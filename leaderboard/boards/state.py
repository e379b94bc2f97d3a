"""What all public answers depend on, as one token: the latest release, and everything that masks what it holds.

A decision, an ingest, an assessment, an expired waiver or another version of the code gives another token. So a cache
validator made from it never outlives a withdrawal, and a request that presents it is answered without touching cells.
"""

import datetime
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.db import connection
from django.db.models import Max

from leaderboard.database import fetch_prepared
from leaderboard.models import Decision, Release, Revision, Waiver

_SOURCES = (
    "leaderboard/**/*.py",
    "leaderboard/**/*.toml",
    "grading/*.py",
    "grading/integrity/*.py",
    "grading/**/*.toml",
    "templates/**/*.html",
    "docs/*.md",
)


_QUERY = f"""
    SELECT (SELECT digest FROM {Release._meta.db_table} ORDER BY number DESC LIMIT 1),
           (SELECT hash FROM {Decision._meta.db_table} ORDER BY sequence DESC LIMIT 1),
           (SELECT number FROM {Revision._meta.db_table} WHERE id = 1),
           (SELECT changed_at FROM {Revision._meta.db_table} WHERE id = 1),
           (SELECT COUNT(*) FROM {Waiver._meta.db_table} WHERE expires_at <= %s)
"""
_known: dict[tuple[str, ...], "State"] = {}


@dataclass(frozen=True, slots=True)
class State:
    """The state of the public site.

    token       differs whenever any public answer may differ
    changed_at  when it last became another one
    """

    token: str
    changed_at: datetime.datetime
    release: int | None


_held: ContextVar[State | None] = ContextVar("held", default=None)


@contextmanager
def holding(state: State) -> Iterator[None]:
    """Let everything within ask for no state again: one answer is made in one state, read before it was begun."""
    before = _held.set(state)
    try:
        yield
    finally:
        _held.reset(before)


def read_state(at: datetime.datetime) -> State:
    """Return the state at a moment; one small query. Read it before the rows it stands for, never after."""
    held = _held.get()
    if held is not None:
        return held
    row = fetch_prepared(connection, _QUERY, [connection.ops.adapt_datetimefield_value(at)])
    key = tuple(map(str, row))
    known = _known.get(key)
    if known is None:
        known = _describe(key, at)
        _known.clear()
        _known[key] = known
    return known


def _describe(parts: tuple[str, ...], at: datetime.datetime) -> State:
    """Return the state that the parts stand for."""
    code, deployed_at = code_version()
    release = Release.objects.values_list("number", "created_at").first()
    moments = [
        deployed_at,
        Waiver.objects.filter(expires_at__lte=at).aggregate(last=Max("expires_at"))["last"],
        release and release[1],
        Decision.objects.order_by("-sequence").values_list("at", flat=True).first(),
        Revision.objects.values_list("changed_at", flat=True).first(),
    ]
    return State(
        token=hashlib.sha256(repr((code, parts)).encode()).hexdigest()[:24],
        changed_at=max(moment for moment in moments if moment is not None),
        release=release[0] if release else None,
    )


@cache
def code_version() -> tuple[str, datetime.datetime]:
    """Return a digest of the sources and the public address, and when the newest source was written."""
    digest = hashlib.sha256(settings.SITE_URL.encode())
    newest = 0.0
    for pattern in _SOURCES:
        for path in sorted(settings.BASE_DIR.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
            newest = max(newest, path.stat().st_mtime)
    return digest.hexdigest()[:16], datetime.datetime.fromtimestamp(newest, datetime.UTC)
