"""The queue, bulk acts and releases."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard import publishing
from leaderboard.models import Decision, Release, Run, Waiver
from leaderboard.publishing import Act
from tests.web.conftest import Add, World
from tests.web.desk import TIMES, sign_in, state_of, url_of


@pytest.fixture
def approver_client(db: None) -> Client:
    """Somebody who decides."""
    return sign_in("ann", "approver")


def order_of(client: Client, tab: str = "decide") -> list[str]:
    """The models of a tab, in order."""
    rows = client.get(f"/review/?tab={tab}").context["page"].rows
    return [row.run.entrant.model.name for row in rows]


def slower(factor: float) -> list[float]:
    return [time * factor for time in TIMES]


def test_what_would_take_first_place_comes_first_then_lapsed_then_oldest(
    add: Add, act: Act, approver_client: Client
) -> None:
    names = ("oldest", "older", "lapsed", "newest", "winner")
    runs = {name: add(name, slower(factor)) for name, factor in zip(names, (4, 3, 2, 5, 1), strict=True)}
    publishing.approve(runs["lapsed"], act)
    runs["lapsed"].assessment.__class__.objects.filter(pk=runs["lapsed"].pk).update(evidence_digest="f" * 64)
    waiting = sorted(["oldest", "older", "newest"], key=lambda name: runs[name].run_id)
    assert order_of(approver_client) == ["winner", "lapsed", *waiting]


def test_places_count_what_is_approved(add: Add, act: Act, approver_client: Client) -> None:
    publishing.approve(add("first", TIMES), act)
    publishing.approve(add("second", slower(2)), act)
    add("between", slower(1.5))
    (row,) = approver_client.get("/review/").context["page"].rows
    assert (row.place.place, row.place.of, row.place.is_best) == (2, 3, False)


def test_each_run_waits_on_its_own_tab(world: World, approver_client: Client) -> None:
    assert order_of(approver_client) == []
    assert order_of(approver_client, "pending") == ["quiet-model"]
    assert order_of(approver_client, "blocked") == ["held-model"]
    assert order_of(approver_client, "decided") == ["gone-model", "good-model"]


def test_filters_narrow_the_queue_but_not_the_places(add: Add, approver_client: Client) -> None:
    add("good-model", TIMES)
    add("slow-model", slower(2))
    page = approver_client.get("/review/?q=slow").context["page"]
    assert [row.run.entrant.model.name for row in page.rows] == ["slow-model"]
    assert not page.rows[0].place.is_best
    assert approver_client.get("/review/?gpu=B200").context["page"].rows == ()


@pytest.mark.parametrize("query", ["tab=all", "page=0", "page=x", "page=-1", "page=99999999999999999999"])
def test_an_address_that_means_nothing_is_not_found(approver_client: Client, query: str) -> None:
    assert approver_client.get(f"/review/?{query}").status_code == 404


def count_queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return len(queries)


def test_the_queries_do_not_grow_with_the_runs(add: Add, act: Act, approver_client: Client) -> None:
    def fill(first: int, last: int) -> Run:
        made = [add(f"model-{index:02d}", slower(1 + index / 10)) for index in range(first, last)]
        publishing.approve(made[0], act)
        made[0].assessment.__class__.objects.filter(pk=made[0].pk).update(evidence_digest="f" * 64)
        add(f"pending-{first}", TIMES, None)
        add(f"held-{first}", TIMES, peak_fraction=0.7319)
        return made[-1]

    fill(0, 2)
    urls = ["/review/", "/review/?tab=pending", "/review/?tab=blocked", "/review/?tab=decided", "/review/release/"]
    few = {url: count_queries(approver_client, url) for url in urls}
    run = fill(2, 50)
    assert {url: count_queries(approver_client, url) for url in urls} == few
    assert max(few.values()) <= 13
    assert count_queries(approver_client, url_of(run)) <= 19


Send = Callable[..., str]


@pytest.fixture
def send(approver_client: Client) -> Send:
    """Preview an act on runs, then confirm what the preview offered; return the last page."""

    def confirm(action: str, runs: list[Run], *, between: Callable[[], object] = lambda: None, **fields: str) -> str:
        body = {"action": action, "run": [run.pk for run in runs], **fields}
        preview = approver_client.post("/review/bulk/", body)
        assert preview.status_code == 200
        bulk = preview.context["bulk"]
        between()
        seen = {f"seen-{line.run.pk}": str(line.seen) for line in bulk.possible}
        chosen = {"run": [line.run.pk for line in bulk.possible]}
        done = {**body, **chosen, **seen, "step": "confirm", "reason": "All read."}
        return approver_client.post("/review/bulk/", done).content.decode()

    return confirm


def test_the_preview_says_what_each_run_will_do_and_does_nothing(add: Add, approver_client: Client) -> None:
    good, held = add("good-model", TIMES), add("held-model", TIMES, peak_fraction=0.7319)
    page = approver_client.post("/review/bulk/", {"action": "approve", "run": [good.pk, held.pk]}).content.decode()
    assert "undecided → approved" in page
    assert "is not eligible: " in page
    assert "score.disagrees" in page
    assert "1 possible, 1 refused" in page
    assert (Decision.objects.count(), state_of(good)) == (0, None)


def test_confirming_decides_on_each_run(add: Add, send: Send) -> None:
    runs = [add("good-model", TIMES), add("slow-model", slower(2))]
    assert "2 runs approved" in send("approve", runs)
    assert [state_of(run) for run in runs] == ["approved", "approved"]
    assert Decision.objects.count() == 2


def test_confirming_twice_decides_once(add: Add, approver_client: Client) -> None:
    run = add("good-model", TIMES)
    bulk = approver_client.post("/review/bulk/", {"action": "approve", "run": run.pk}).context["bulk"]
    body = {
        "action": "approve",
        "run": run.pk,
        f"seen-{run.pk}": str(bulk.lines[0].seen),
        "step": "confirm",
        "reason": "Read.",
    }
    pages = [approver_client.post("/review/bulk/", body).content.decode() for _ in range(2)]
    assert "made before" in pages[1]
    assert Decision.objects.count() == 1


def test_a_run_that_changed_after_the_preview_is_left_alone_and_named(add: Add, act: Act, send: Send) -> None:
    runs = [add("good-model", TIMES), add("slow-model", slower(2))]
    page = send("approve", runs, between=lambda: publishing.reject(runs[1], act))
    assert "1 run approved" in page
    assert "ada decided meanwhile" in page
    assert [state_of(run) for run in runs] == ["approved", "rejected"]


def test_interesting_runs_need_the_acknowledgement_in_bulk_too(add: Add, send: Send) -> None:
    run = add("odd-model", TIMES, "interesting")
    assert "explicit acknowledgement" in send("approve", [run])
    assert state_of(run) is None
    assert "1 run approved" in send("approve", [run], acknowledged="on")


def test_a_batch_is_waived_by_one_decision(add: Add, send: Send) -> None:
    runs = [add(f"bare-{index}", TIMES, device_name=None) for index in range(3)]
    page = send("waive", runs, code="gpu.unproven", batch="spring", reuse="on")
    assert "3 runs excepted" in page
    waiver = Waiver.objects.get()
    assert (waiver.batch, waiver.runs.count(), waiver.decision.kind) == ("spring", 3, "historical_reuse")


def test_the_waiver_preview_tells_the_standing_that_follows(add: Add, approver_client: Client) -> None:
    run = add("bare-model", TIMES, device_name=None)
    other = add("good-model", TIMES)
    body = {"action": "waive", "run": [run.pk, other.pk], "code": "gpu.unproven"}
    page = approver_client.post("/review/bulk/", body).content.decode()
    assert "blocked → eligible" in page
    assert "gpu.unproven does not block this run" in page
    assert Waiver.objects.count() == 0


@pytest.mark.parametrize("body", [{"action": "approve"}, {"action": "approve", "run": ["x", "-1", "999999999"]}])
def test_nothing_selected_is_said(approver_client: Client, body: dict) -> None:
    response = approver_client.post("/review/bulk/", body, follow=True)
    assert "Select 1 to 200 runs" in response.content.decode()


def test_the_release_preview_tells_what_changes_and_why(add: Add, act: Act, approver_client: Client) -> None:
    run = add("good-model", TIMES)
    add("held-model", TIMES, peak_fraction=0.7319)
    publishing.approve(run, act)
    page = approver_client.get("/review/release/").content.decode()
    assert "Enters as a result" in page
    assert "approved by <bdi>ada</bdi>" in page
    assert "withheld: " in page
    assert "score.disagrees" in page
    assert Release.objects.count() == 0


def publish(client: Client, digest: str) -> int:
    return client.post("/review/release/", {"reason": "Spring results.", "digest": digest}).status_code


def test_a_release_is_taken_once_and_only_as_previewed(add: Add, act: Act, approver_client: Client) -> None:
    publishing.approve(add("good-model", TIMES), act)
    digest = approver_client.get("/review/release/").context["preview"].digest
    assert [publish(approver_client, digest) for _ in range(2)] == [302, 302]
    assert Release.objects.count() == 1
    publishing.approve(add("slow-model", slower(2)), act)
    stale = approver_client.get("/review/release/").context["preview"].digest
    publishing.approve(add("third-model", slower(3)), act)
    assert publish(approver_client, stale) == 409
    assert Release.objects.count() == 1
    assert "the same as the latest one" not in approver_client.get("/review/release/").content.decode()
