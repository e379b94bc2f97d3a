"""People and archives of the database tests."""

import contextlib
import datetime
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from leaderboard.ingest import Report, Source, ingest_paths
from leaderboard.models import Run
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.factories import make_audit_text, write_archive

Ingest = Callable[..., Report]


def make_user(name: str, *roles: str, **fields: str) -> User:
    """Return a person with roles."""
    user = User.objects.create_user(name, **fields)
    user.groups.set(Group.objects.filter(name__in=roles))
    return user


@pytest.fixture
def approver(db: None) -> User:
    """A person who decides."""
    return make_user("ada", "approver", email="ada@example.org")


@pytest.fixture
def act(approver: User, now: datetime.datetime) -> Act:
    """A decision's who, why and when."""
    return Act(approver, "Read the evidence.", now)


@pytest.fixture
def ingest(db: None, now: datetime.datetime) -> Ingest:
    """Ingest paths and assess what was touched."""

    def run(*paths: Path, **options: Any) -> Report:
        report = ingest_paths(paths, Source(now), **options)
        recompute_all(runs=report.touched)
        return report

    return run


@pytest.fixture
def publishable(tmp_path: Path, ingest: Ingest) -> Callable[..., Run]:
    """Make a run that is eligible unless its fields or its audit say otherwise."""

    def make(
        verdict: str | None = "clean", *, model: str = "gpt-test", problem: str = "07_w4a16_gemm", **fields: Any
    ) -> Run:
        folder = write_archive(tmp_path / "archive", problem_id=problem, model=model, **fields)
        paths = [folder]
        if verdict is not None:
            audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
            audit.parent.mkdir(parents=True, exist_ok=True)
            audit.write_text(make_audit_text(folder.name, verdict))
            paths.append(audit)
        ingest(*paths)
        return load_run(folder.name)

    return make


def load_run(run_id: str) -> Run:
    """Return a run with everything that decisions look at."""
    related = ("problem", "entrant__model", "assessment", "publication")
    return Run.objects.select_related(*related).get(run_id=run_id)


@contextlib.contextmanager
def forced_edits() -> Iterator[None]:
    """Take the append-only triggers away, as somebody with the database's password could."""
    migration = importlib.import_module("leaderboard.migrations.0002_append_only")
    with connection.cursor() as cursor:
        editor = SimpleNamespace(connection=connection, execute=cursor.execute)
        migration.drop_triggers(None, editor)
        try:
            yield
        finally:
            migration.add_triggers(None, editor)
