"""A site with one run of each kind, tokens, and bundles."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.utils import timezone

from leaderboard import publishing, tokens
from leaderboard.models import LanguageModel, Run
from leaderboard.publishing import Act
from tests.api.helpers import Bundle, Site, TokenFor, make_log, pack_files
from tests.database import Ingest, load_run, make_user
from tests.factories import make_audit_text, write_archive


@pytest.fixture(autouse=True)
def _fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _own_folder(settings, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path / "var"


@pytest.fixture
def site(publishable: Callable[..., Run], act: Act) -> Site:
    """A release with two published cells, a withheld, a failed and a pending run, and one withdrawn since."""
    made = {
        "published": publishable(log=make_log(0.0441), model="shown", started_at="2026-07-01T12:00:00Z"),
        "slower": publishable(log=make_log(0.0497), model="slower"),
        "withheld": publishable(log=make_log(0.0573), model="held", device_name=None),
        "withdrawn": publishable(log=make_log(0.0739), model="gone"),
        "pending": publishable(None, log=make_log(0.0811), model="quiet"),
        "failed": publishable("bug", log=make_log(0.0937), model="broken", correct=False),
    }
    for name in ("published", "slower", "withdrawn"):
        publishing.approve(made[name], act)
    publishing.release(act)
    publishing.withdraw(made["withdrawn"], act)
    return Site({name: load_run(run.run_id) for name, run in made.items()})


@pytest.fixture
def token_for(db: None) -> TokenFor:
    """Make a token with scopes and return the headers that present it."""

    def make(*scopes: str, user: str = "lab", days: int = 30, **limits: int) -> dict[str, str]:
        owner = User.objects.filter(username=user).first() or make_user(user)
        _, text = tokens.make_token(owner, "test", scopes, timezone.now(), days=days, **limits)
        return {"Authorization": f"Bearer {text}"}

    return make


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Pack a run directory, with its fields overridden, as ``zip`` or ``tar.gz``."""
    count = 0

    def pack(kind: str = "zip", *, extra: dict[str, bytes] | None = None, **fields: object) -> bytes:
        nonlocal count
        count += 1
        root = tmp_path / f"pack{count}"
        folder = write_archive(root, **fields)
        files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        return pack_files({**files, **(extra or {})}, kind)

    return pack


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(db: None, settings) -> Iterator[str]:
    """The address of a server on this test's own transaction; it answers one request at a time."""
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    shared = connections[DEFAULT_DB_ALIAS]
    server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=_Quiet)

    def serve() -> None:
        connections[DEFAULT_DB_ALIAS] = shared
        server.serve_forever()

    thread = threading.Thread(target=serve, daemon=True)
    shared.inc_thread_sharing()
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)
        shared.dec_thread_sharing()


@pytest.fixture
def hostile(tmp_path: Path, ingest: Ingest, act: Act) -> Callable[[str, str], Run]:
    """Publish a run whose model name and audit summary are the given text, by hand where ingest refuses it."""

    def make(text: str, stamp: str) -> Run:
        log = make_log(0.0441 + int(stamp[-2:]) / 1000)
        folder = write_archive(tmp_path / "hostile", model="plain", stamp=stamp, log=log)
        result = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps({**result, "model": text}))
        audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
        audit.parent.mkdir(parents=True, exist_ok=True)
        summary = json.dumps(text, ensure_ascii=not any(ord(letter) > 0xFFFF for letter in text))
        audit.write_text(make_audit_text(folder.name, summary="?").replace('summary: "?"', f"summary: {summary}"))
        report = ingest(folder, audit)
        if report.rejected:
            (folder / "result.json").write_text(json.dumps({**result, "model": f"stand-in-{stamp}"}))
            ingest(folder)
            assert LanguageModel.objects.filter(name=f"stand-in-{stamp}").update(name=text)
        publishing.waive("run.id_mismatch", [load_run(folder.name)], act, batch="names")
        run = load_run(folder.name)
        publishing.approve(run, act)
        return run

    return make
