"""Uploads through the API: bundles and audits, stored whole or not at all, and a report of what the rules find.

An upload never touches what is held: a run that is held with other content makes the whole upload a conflict, and
nothing of it is kept. What arrives twice is answered twice and stored once.
"""

import datetime
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.http.request import UnreadablePostError

from grading import archive
from grading.auditfile import MAX_AUDIT_BYTES, AuditError, read_audit
from leaderboard.explain import explain
from leaderboard.ingest import Report, Source, ingest_items
from leaderboard.models import Audit, Run
from leaderboard.recompute import recompute_all

_CHUNK_BYTES = 64 * 1024
_MAGIC = {b"PK\x03\x04": ".zip", b"PK\x05\x06": ".zip", b"\x1f\x8b": ".tar.gz"}
_ATTEMPTS = 3


class UploadError(Exception):
    """An upload that is refused as a whole; code is one of the API's, the message is safe to show to users."""

    def __init__(self, code: str, message: str, parts: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.parts = code, message, parts or []


@dataclass(frozen=True, slots=True)
class Order:
    """Who uploads, when, and what is wanted.

    deck, gpu      of all runs, instead of what their paths in the bundle say
    allows_audits  whether the uploader may also bring audits
    """

    uploader: User
    at: datetime.datetime
    deck: str | None = None
    gpu: str | None = None
    is_dry_run: bool = False
    allows_audits: bool = False


@dataclass
class Outcome:
    """What an upload did, or would do."""

    is_new: bool = False
    runs: list[dict[str, Any]] = field(default_factory=list)
    audits: list[dict[str, Any]] = field(default_factory=list)


class _Undo(Exception):
    """Raised inside the transaction to undo everything after the report is made."""


@contextmanager
def receive(request: HttpRequest) -> Iterator[Path]:
    """Write the body to a file of its own and give its path; nothing is left when the block ends.

    Raises UploadError for a body that is absent, too large, cut short, or neither zip nor gzip.
    """
    size = _declared_size(request, settings.MAX_UPLOAD_BYTES)
    parent = settings.VAR_DIR / "incoming"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="upload-", dir=parent) as folder:
        path, received = Path(folder) / "body", 0
        with path.open("xb") as file:
            for chunk in _chunks(request):
                received += len(chunk)
                file.write(chunk)
        if received != size:
            raise UploadError("bad_request", f"the body ended after {received} of {size} bytes")
        with path.open("rb") as file:
            start = file.read(4)
        ending = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), None)
        if ending is None:
            raise UploadError("unsupported_type", "the body is neither a zip nor a gzip file")
        yield path.rename(path.with_name(f"bundle{ending}"))


def _declared_size(request: HttpRequest, most: int) -> int:
    text = request.META.get("CONTENT_LENGTH") or ""
    if not text.isdigit() or int(text) == 0:
        raise UploadError("length_required", "Content-Length is missing or 0; send the file as the body, not in chunks")
    if int(text) > most:
        raise UploadError("too_large", f"the body is {text[:20]} bytes long; at most {most} are accepted")
    return int(text)


def _chunks(request: HttpRequest) -> Iterator[bytes]:
    try:
        while chunk := request.read(_CHUNK_BYTES):
            yield chunk
    except UnreadablePostError as error:
        raise UploadError("bad_request", "the body could not be read to its end") from error


def store_bundle(path: Path, order: Order) -> Outcome:
    """Read a bundle and store all of it, or, where any part cannot be taken, nothing. Raises UploadError."""
    items = list(archive.read_paths([path], deck=order.deck, gpu=order.gpu))
    refused = [(_inside(item.path, path), item.reason) for item in items if isinstance(item, archive.Rejection)]
    if refused:
        raise UploadError("bad_bundle", f"{refused[0][0]}: {refused[0][1]}", refused[:100])
    if not order.allows_audits and any(isinstance(item, archive.AuditItem) for item in items):
        raise UploadError("insufficient_scope", "the bundle holds audits, and the token has no scope for them")
    return _store(items, order)


def _inside(text: str, path: Path) -> str:
    """Return where in the bundle something is, without where the bundle was on this machine."""
    return text.removeprefix(str(path)).strip("/") or "bundle"


def read_audit_body(request: HttpRequest) -> bytes:
    """Return the body of an audit. Raises UploadError for one that is absent, too large or cut short."""
    size = _declared_size(request, MAX_AUDIT_BYTES)
    data = b"".join(_chunks(request))
    if len(data) != size:
        raise UploadError("bad_request", f"the body ended after {len(data)} of {size} bytes")
    return data


def store_audit(data: bytes, name: str | None, order: Order) -> Outcome:
    """Read one audit and store it. Raises UploadError for what is no audit, or none that can be read."""
    name = name or f"upload-{hashlib.sha256(data).hexdigest()[:12]}.yaml"
    try:
        audit = read_audit(data, name, order.deck)
    except AuditError as error:
        raise UploadError("bad_audit", str(error), [(name, str(error))]) from error
    if audit.status == "unreadable":
        place = f" at line {audit.error_line}, column {audit.error_column}" if audit.error_line else ""
        message = f"the audit cannot be read{place}: {audit.error}"
        raise UploadError("bad_audit", message, [(name, message)])
    return _store([archive.AuditItem(name, audit, data)], order)


def _store(items: list[archive.Item], order: Order) -> Outcome:
    """Store in one transaction; where another upload of the same was faster, look again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _try_to_store(items, order)
        except IntegrityError:
            continue
    return _try_to_store(items, order)


def _try_to_store(items: list[archive.Item], order: Order) -> Outcome:
    outcome = Outcome()
    try:
        with transaction.atomic():
            held = _held_keys(items)
            may_settle = order.uploader is not None and order.uploader.has_perm("leaderboard.write_audit")
            report = ingest_items(items, Source(order.at, order.uploader, may_settle=may_settle))
            _refuse_conflicts(report)
            recompute_all(runs=report.touched)
            outcome.is_new = bool(report.runs_new or report.audits_new)
            outcome.runs = [_run_data(item, held, order.at) for item in items if isinstance(item, archive.RunItem)]
            outcome.audits = [_audit_data(item, held) for item in items if isinstance(item, archive.AuditItem)]
            if order.is_dry_run or not outcome.is_new:
                raise _Undo
    except _Undo:
        pass
    return outcome


def _refuse_conflicts(report: Report) -> None:
    if report.conflicts:
        message = f"{report.conflicts[0][0]} is already held with other content; nothing was stored"
        raise UploadError("conflict", message, [(name, "held with other content") for name, _ in report.conflicts])


def _held_keys(items: list[archive.Item]) -> set[tuple[str, str, str]]:
    """Return the keys of the runs, and the (deck, file, digest) of the audits, that are held already."""
    ids = {item.record.key.run_id for item in items if isinstance(item, archive.RunItem)}
    files = {item.audit.file for item in items if isinstance(item, archive.AuditItem)}
    runs = Run.objects.filter(run_id__in=ids).values_list("deck", "gpu", "run_id")
    return {*runs, *Audit.objects.filter(file__in=files).values_list("deck", "file", "digest")}


def _run_data(item: archive.RunItem, held: set[tuple[str, str, str]], at: datetime.datetime) -> dict[str, Any]:
    """Return what became of a run; the findings only of one that this upload brings."""
    key = item.record.key
    names = ("standing", "blockers", "recomputed", "reported", "agrees", "reason", "shapes", "findings")
    data: dict[str, Any] = {"deck": key.deck, "gpu": key.gpu, "run_id": key.run_id, "outcome": "held"}
    if (key.deck, key.gpu, key.run_id) in held:
        return {**data, **dict.fromkeys(names)}
    run = Run.objects.select_related("problem", "entrant", "assessment").get(
        deck=key.deck, gpu=key.gpu, run_id=key.run_id
    )
    full = explain(run, at)
    value = full["recomputed"]
    full["recomputed"] = [value["value"], value["low"], value["high"]] if value else None
    return {**data, "outcome": "new", **{name: full[name] for name in names}}


def _audit_data(item: archive.AuditItem, held: set[tuple[str, str, str]]) -> dict[str, Any]:
    audit = item.audit
    key = (audit.deck or "", audit.file, audit.digest)
    row = Audit.objects.select_related("run").get(deck=key[0], file=key[1], digest=key[2])
    return {
        "file": audit.file,
        "outcome": "held" if key in held else "new",
        "status": audit.status,
        "verdict": audit.verdict,
        "run": str(row.run) if row.run else None,
    }
