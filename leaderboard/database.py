"""What the database connection needs beyond Django's defaults."""

from collections.abc import Sequence
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper


def tune_sqlite(sender: type, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Let readers and one writer work at the same time on SQLite."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = wal")
            cursor.execute("PRAGMA synchronous = normal")


def fetch_prepared(connection: BaseDatabaseWrapper, query: str, parameters: Sequence[Any]) -> Sequence[Any]:
    """Return the one row of the query that every request begins with. PostgreSQL plans it once per connection.

    Django binds parameters at the client, where nothing can be prepared; SQLite's driver keeps statements itself.
    An answer shows that the connection lives, so that Django need not ask for that; a dead one is replaced once.
    """
    if connection.vendor != "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchone()
    try:
        row = _fetch(connection, query, parameters)
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block or connection.health_check_done:
            raise
        connection.close()
        row = _fetch(connection, query, parameters)
    connection.health_check_done = True
    return row


def _fetch(connection: BaseDatabaseWrapper, query: str, parameters: Sequence[Any]) -> Sequence[Any]:
    import psycopg

    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(query, parameters, prepare=True).fetchone() or ()
