"""One form sent from many hands at once, on PostgreSQL: one decision, and everyone is told what happened."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection, connections
from django.test import Client

from leaderboard import publishing
from leaderboard.models import Decision, Release
from tests.web.conftest import Add
from tests.web.desk import TIMES, filled, sign_in, state_of, url_of

HANDS = 8
pytestmark = [
    pytest.mark.usefixtures("clean_log"),
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="one writer at a time is PostgreSQL's test"),
]


def press_together(clients: list[Client], press: Callable[[Client], int]) -> list[int]:
    """Let every client press at the same moment; return the statuses, sorted."""
    barrier, found = threading.Barrier(len(clients)), []

    def work(client: Client) -> None:
        try:
            barrier.wait(timeout=30)
            found.append(press(client))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return sorted(found)


def test_one_person_pressing_in_eight_windows_decides_once(add: Add) -> None:
    assert connection.vendor == "postgresql"
    run = add("good-model", TIMES)
    form = filled(run, "approve")
    clients = [sign_in("ann", "approver") for _ in range(HANDS)]
    statuses = press_together(clients, lambda client: client.post(url_of(run), form).status_code)
    assert statuses == [302] * HANDS
    assert Decision.objects.count() == 1
    assert publishing.verify_log() == []


def test_eight_people_pressing_at_once_decide_once(add: Add) -> None:
    run = add("good-model", TIMES)
    form = filled(run, "reject")
    clients = [sign_in(f"person-{number}", "approver") for number in range(HANDS)]
    statuses = press_together(clients, lambda client: client.post(url_of(run), form).status_code)
    assert statuses == [302] + [409] * (HANDS - 1)
    assert (Decision.objects.count(), state_of(run)) == (1, "rejected")


def test_a_release_previewed_by_eight_is_taken_once(add: Add) -> None:
    run = add("good-model", TIMES)
    clients = [sign_in(f"person-{number}", "approver") for number in range(HANDS)]
    assert clients[0].post(url_of(run), filled(run, "approve")).status_code == 302
    digest = clients[0].get("/review/release/").context["preview"].digest
    body = {"reason": "Spring.", "digest": digest}
    statuses = press_together(clients, lambda client: client.post("/review/release/", body).status_code)
    assert statuses == [302] + [409] * (HANDS - 1)
    assert Release.objects.count() == 1
