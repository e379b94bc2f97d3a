"""The desk in a browser: how many keys a review takes, and that nothing on its pages breaks the security policy."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from leaderboard.models import Decision, Run
from tests.web.conftest import Add
from tests.web.desk import TIMES, sign_in, state_of, url_of

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
Visit = Callable[[str, list[str]], tuple[str, list[str]]]


@pytest.fixture
def approver_client(clean_log: None) -> Client:
    """Somebody who decides."""
    return sign_in("ann", "approver")


@pytest.fixture
def visit(live_server: Any, approver_client: Client) -> Visit:
    """Open a page as the approver, press keys, and return where that leads and what the console said."""
    from playwright.sync_api import sync_playwright

    key = approver_client.cookies[settings.SESSION_COOKIE_NAME].value
    assert Session.objects.filter(pk=key).exists()

    def press(path: str, keys: list[str]) -> tuple[str, list[str]]:
        said: list[str] = []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            context = browser.new_context()
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": live_server.url}])
            page = context.new_page()
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(live_server.url + path)
            for name in keys[:-1]:
                page.keyboard.press(name)
            if keys:
                with page.expect_navigation():
                    page.keyboard.press(keys[-1])
            place = page.url.removeprefix(live_server.url)
            browser.close()
        return place, said

    return press


def test_approving_after_reading_takes_two_keys(add: Add, visit: Visit) -> None:
    run = add("good-model", TIMES)
    assert visit(url_of(run), ["a", "Enter"]) == ("/review/?tab=decide", [])
    assert state_of(run) == "approved"
    assert Decision.objects.get().reason.startswith("Read the clean audit")


def test_approving_with_an_acknowledgement_takes_three_keys(add: Add, visit: Visit) -> None:
    run = add("odd-model", TIMES, "interesting")
    assert visit(url_of(run), ["a", " ", "Enter"]) == ("/review/?tab=decide", [])
    assert state_of(run) == "approved"


def test_keys_walk_through_the_queue(add: Add, visit: Visit) -> None:
    first, second = add("first-model", TIMES), add("second-model", [time * 2 for time in TIMES])
    assert visit("/review/", ["n"]) == (f"{url_of(first)}?tab=decide", [])
    assert visit(url_of(first), ["n"]) == (f"{url_of(second)}?tab=decide", [])
    assert visit(url_of(second), ["p"]) == (f"{url_of(first)}?tab=decide", [])
    assert visit(url_of(second), ["q"])[0] == "/review/?tab=decide"


def test_a_key_never_decides_by_itself(add: Add, visit: Visit) -> None:
    run: Run = add("good-model", TIMES)
    visit(url_of(run), ["r", "x", "Escape", "?", "Escape", "q"])
    assert state_of(run) is None
    assert Decision.objects.count() == 0


def test_no_page_of_the_desk_breaks_the_policy(add: Add, visit: Visit) -> None:
    add("good-model", TIMES)
    for path in ("/review/", "/review/?tab=blocked", "/review/release/", "/review/tokens/"):
        assert visit(path, [])[1] == []
