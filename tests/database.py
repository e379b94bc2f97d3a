"""What database tests share that is no fixture: people, loaded runs, and edits past the triggers."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from django.contrib.auth.models import Group, User
from django.db import connection

from leaderboard.ingest import Report
from leaderboard.models import Run

Ingest = Callable[..., Report]


def make_user(name: str, *roles: str, **fields: str) -> User:
    """Return a person with roles."""
    user = User.objects.create_user(name, **fields)
    user.groups.set(Group.objects.filter(name__in=roles))
    return user


def load_run(run_id: str) -> Run:
    """Return a run with everything that decisions look at."""
    related = ("problem", "entrant__model", "assessment", "publication")
    return Run.objects.select_related(*related).get(run_id=run_id)


@contextlib.contextmanager
def forced_edits() -> Iterator[None]:
    """Take the append-only triggers away, as somebody with the database's password could."""
    names = ("0002_append_only", "0008_grading_service")
    migrations = [importlib.import_module(f"leaderboard.migrations.{name}") for name in names]
    with connection.cursor() as cursor:
        editor = SimpleNamespace(connection=connection, execute=cursor.execute)
        for migration in migrations:
            migration.drop_triggers(None, editor)
        try:
            yield
        finally:
            for migration in migrations:
                migration.add_triggers(None, editor)
