"""A connection that died between two requests is replaced by the query that every request begins with."""

import psycopg
import pytest
from django.db import OperationalError, close_old_connections, connection
from django.utils import timezone

from leaderboard.boards.state import read_state

pytestmark = [
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="a server that ends connections is PostgreSQL's test"),
]


def end_own_connection() -> None:
    """End the connection from the server's side, as a restart does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (number,) = cursor.fetchone()
    settings = connection.get_connection_params()
    address = {name: settings[name] for name in ("host", "port", "user", "password", "dbname") if name in settings}
    with psycopg.connect(**address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [number])


def test_a_request_after_the_server_ended_the_connection_is_answered() -> None:
    before = read_state(timezone.now())
    end_own_connection()
    close_old_connections()  # what Django does as a request begins
    assert read_state(timezone.now()) == before
    assert connection.health_check_done


def test_a_connection_that_dies_within_a_request_is_said_to_have() -> None:
    read_state(timezone.now())
    end_own_connection()
    with pytest.raises(OperationalError):
        read_state(timezone.now())
    connection.close()
