"""What all public answers depend on, as one token: the latest release, and everything that masks what it holds.

A decision, an ingest, an assessment, an expired waiver or another version of the code gives another token. So a cache
validator made from it never outlives a withdrawal, and a request that presents it is answered without touching cells.
"""

import datetime
import hashlib
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.db.models import Count, Max

from leaderboard.models import Decision, Release, Revision, Waiver

_SOURCES = (
    "leaderboard/**/*.py",
    "leaderboard/**/*.toml",
    "grading/*.py",
    "grading/integrity/*.py",
    "grading/**/*.toml",
)


@dataclass(frozen=True, slots=True)
class State:
    """The state of the public site.

    token       differs whenever any public answer may differ
    changed_at  when it last became another one
    """

    token: str
    changed_at: datetime.datetime
    release: int | None


def read_state(at: datetime.datetime) -> State:
    """Return the state at a moment; four small queries. Read it before the rows it stands for, never after."""
    code, deployed_at = code_version()
    release = Release.objects.values_list("number", "digest", "created_at").first()
    decision = Decision.objects.order_by("-sequence").values_list("hash", "at").first()
    revision = Revision.objects.values_list("number", "changed_at").first()
    expired = Waiver.objects.filter(expires_at__lte=at).aggregate(count=Count("pk"), last=Max("expires_at"))
    parts = [code, release, decision, revision, expired["count"]]
    moments = [release and release[2], decision and decision[1], revision and revision[1], expired["last"], deployed_at]
    return State(
        token=hashlib.sha256(repr(parts).encode()).hexdigest()[:24],
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
