"""What the database connection needs beyond Django's defaults."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


def tune_sqlite(sender: type, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Let readers and one writer work at the same time on SQLite."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = wal")
            cursor.execute("PRAGMA synchronous = normal")
