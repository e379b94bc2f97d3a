"""Reading: validators, methods, cross-origin headers, errors, pages, filters."""

import datetime
import importlib
import time
from collections.abc import Callable

import pytest
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client
from django.utils.http import http_date

from leaderboard import publishing
from leaderboard.api import reading
from leaderboard.models import Revision, Run
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.api.helpers import Site, body_of, make_log, walk
from tests.database import load_run

CELLS = "/api/v1/cells"
SORTS = ["id", "-id", "score", "-score", "rank", "-share_of_best", "model", "-run_id"]


def read_head(client: Client, address: str, headers: dict[str, str] | None = None) -> HttpResponse:
    """Return the answer to HEAD, read to its end, which closes it."""
    response = client.head(address, headers=headers)
    body_of(response)
    return response


def test_an_unchanged_answer_is_304_and_reads_no_cell(site: Site, client: Client, django_assert_num_queries) -> None:
    first = client.get(CELLS)
    with django_assert_num_queries(1):
        again = client.get(CELLS, headers={"If-None-Match": f'"other", W/{first["ETag"]}'})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert again["Cache-Control"] == first["Cache-Control"]


def test_a_withdrawal_changes_the_validator_at_once_also_of_a_pinned_release(
    site: Site, client: Client, act: Act
) -> None:
    addresses = [CELLS, f"{CELLS}?release=1", "/api/v1/cells.csv", "/api/v1/releases/1/archive.tar.gz", "/feed.xml"]
    before = {address: read_head(client, address)["ETag"] for address in addresses}
    publishing.withdraw(site["published"], act)
    for address in addresses:
        assert read_head(client, address, {"If-None-Match": before[address]}).status_code == 200
    cell = client.get(f"{CELLS}/{site.cell('published')}?release=1").json()
    assert (cell["status"], cell["score"], cell["audit"]["summary"]) == ("withheld", None, None)


def test_a_new_assessment_changes_the_validator(site: Site, client: Client) -> None:
    before = client.get(CELLS)["ETag"]
    recompute_all(is_forced=True, runs=[site["published"].pk])
    assert client.get(CELLS, headers={"If-None-Match": before}).status_code == 200


def test_a_waiver_that_expires_changes_the_validator(site: Site, client: Client, act: Act, monkeypatch) -> None:
    soon = act.at + datetime.timedelta(hours=1)
    publishing.waive("gpu.unproven", [site["withheld"]], act, batch="old", expires_at=soon)
    publishing.approve(load_run(site["withheld"].run_id), act)
    publishing.release(act)
    seen = []
    for moment in (soon - datetime.timedelta(seconds=1), soon):
        monkeypatch.setattr("django.utils.timezone.now", lambda moment=moment: moment)
        response = client.get(f"{CELLS}/{site.cell('withheld')}")
        seen.append((response["ETag"], response.json()["status"]))
    assert seen[0][0] != seen[1][0]
    assert [status for _, status in seen] == ["published", "withheld"]


def test_a_date_validates_only_after_its_second_has_passed(site: Site, client: Client) -> None:
    changed = Revision.objects.get().changed_at
    fresh = client.get(CELLS)
    old = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    Revision.objects.update(changed_at=changed - datetime.timedelta(seconds=5))
    assert client.get(CELLS, headers={"If-Modified-Since": http_date(old.timestamp())}).status_code == 200
    assert "Cache-Control" in fresh
    assert "immutable" not in fresh["Cache-Control"]
    assert "no-cache" in fresh["Cache-Control"]


def test_head_has_the_headers_of_get_and_no_body(site: Site, client: Client) -> None:
    while not client.head(CELLS).has_header("Last-Modified"):
        time.sleep(0.05)  # no date names the state while the second of its last change still runs
    for address in (CELLS, "/api/v1/cells.ndjson", "/api/v1/releases/1/archive.tar.gz", "/feed.xml"):
        get, head = client.get(address), client.head(address)
        body_of(get)
        ignored = {"RateLimit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Content-Security-Policy"}
        kept = [{k: v for k, v in response.items() if k not in ignored} for response in (get, head)]
        assert kept[0] == kept[1]
        assert body_of(head) == b""


def test_options_says_what_is_possible_and_lets_other_origins_read_only(client: Client, db: None) -> None:
    both = client.options("/api/v1/runs")
    assert (both.status_code, both["Allow"]) == (204, "GET, POST, HEAD, OPTIONS")
    assert both["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS"
    write_only = client.options("/api/v1/audits")
    assert write_only["Allow"] == "POST, OPTIONS"
    assert "Access-Control-Allow-Origin" not in write_only


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "trace"])
def test_another_method_is_405_with_what_is_possible(method: str, client: Client, db: None) -> None:
    response = getattr(client, method)(CELLS)
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert response.json()["code"] == "method_not_allowed"


def test_every_reading_answer_may_be_read_by_any_origin(site: Site, client: Client) -> None:
    for address in (CELLS, f"{CELLS}/none", f"{CELLS}?limit=0", "/api/v1/none", "/feed.xml", "/boards/hard/H200.json"):
        assert client.get(address)["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize(
    ("address", "status", "code", "field"),
    [
        ("/api/v1/none", 404, "not_found", None),
        ("/api/v1/cells/", 404, "not_found", None),
        ("/api/v1/cells/none", 404, "unknown_cell", "cell_id"),
        ("/api/v1/cells?release=77", 404, "unknown_release", "release"),
        ("/api/v1/releases/77", 404, "unknown_release", "release"),
        ("/api/v1/releases/x", 422, "invalid_parameter", "number"),
        ("/api/v1/runs/hard/H200/none", 404, "unknown_run", None),
        ("/api/v1/runs/hard/H200/%00", 404, "unknown_run", None),
        ("/api/v1/cells?deck=none", 422, "invalid_parameter", "deck"),
        ("/api/v1/cells?sort=secret", 422, "invalid_parameter", "sort"),
        ("/api/v1/cells?fields=id,secret", 422, "invalid_parameter", "fields"),
        ("/api/v1/cells?limit=0", 422, "invalid_parameter", "limit"),
        ("/api/v1/cells?limit=1000000000000", 422, "invalid_parameter", "limit"),
        ("/api/v1/cells?limit=abc", 422, "invalid_parameter", "limit"),
        ("/api/v1/cells?limit=1&limit=2", 422, "invalid_parameter", "limit"),
        ("/api/v1/cells?mdoel=x", 422, "unknown_parameter", "mdoel"),
        ("/api/v1/cells?cursor=abc", 422, "invalid_parameter", "cursor"),
        ("/api/v1/cells?since=2026-02-31", 422, "invalid_parameter", "since"),
        ("/api/v1/runs?q=%00", 422, "invalid_parameter", "q"),
        ("/api/v1/findings?code=none", 422, "invalid_parameter", "code"),
    ],
)
def test_an_error_is_a_problem_document(
    address: str, status: int, code: str, field: str | None, site: Site, client
) -> None:
    response = client.get(address)
    body = response.json()
    assert (response.status_code, body["status"], body["code"], body["field"]) == (status, status, code, field)
    assert response["Content-Type"] == "application/problem+json"
    assert body["type"].endswith(f"/api/v1/docs#error-{code}")
    assert f'id="error-{code}"' in client.get("/api/v1/docs").content.decode()


def test_a_bug_shows_an_id_and_no_text(site: Site, client: Client, monkeypatch, caplog) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("the secret text")

    monkeypatch.setattr(reading, "snapshot_of", fail)
    response = client.get(CELLS)
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert b"secret" not in response.content
    assert "the secret text" in caplog.text


def test_a_database_that_is_away_is_503(site: Site, client: Client, monkeypatch) -> None:
    def fail(*args: object) -> None:
        raise OperationalError("server at 10.0.0.1 closed the connection")

    monkeypatch.setattr(importlib.import_module("leaderboard.api.guard"), "read_state", fail)
    response = client.get(CELLS)
    assert (response.status_code, response.json()["code"], response["Retry-After"]) == (503, "unavailable", "30")
    assert b"10.0.0.1" not in response.content


def test_reading_and_uploads_have_limits_of_their_own(client: Client, db: None, settings) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "read": (2, 60), "upload": (1, 3600)}
    answers = [client.get("/api/v1/gpus") for _ in range(3)]
    assert [response.status_code for response in answers] == [200, 200, 429]
    assert answers[0]["RateLimit-Policy"] == '"read";q=2;w=60'
    assert answers[0]["RateLimit"].startswith('"read";r=1;t=')
    assert (answers[2].json()["code"], answers[2]["X-RateLimit-Remaining"]) == ("rate_limited", "0")
    assert 0 < int(answers[2]["Retry-After"]) <= 60
    assert [client.post("/api/v1/runs").status_code for _ in range(2)] == [401, 429]


def test_an_address_behind_the_proxy_is_the_one_that_the_proxy_saw(client: Client, db: None, settings) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "read": (1, 60)}
    settings.BEHIND_PROXY = True
    codes = [
        client.get("/api/v1/gpus", headers={"X-Forwarded-For": text}).status_code
        for text in ("9.9.9.9, 1.1.1.1", "8.8.8.8, 1.1.1.1", "1.1.1.1, 2.2.2.2", "2001:db8::1", "2001:db8::2", "x")
    ]
    assert codes == [200, 429, 200, 200, 429, 200]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_hold_every_cell_once_and_missing_values_are_last(
    sort: str, limit: int, site: Site, client: Client
) -> None:
    whole = client.get(f"{CELLS}?sort={sort}").json()["results"]
    paged = list(walk(client, f"{CELLS}?sort={sort}&limit={limit}"))
    assert paged == whole
    key = sort.lstrip("-")
    if key in ("score", "share_of_best", "rank"):
        values = [row[key] for row in whole]
        shown = [value for value in values if value is not None]
        assert values == shown + [None] * (len(values) - len(shown))
        assert shown == sorted(shown, reverse=sort.startswith("-"))


def test_a_cursor_stays_with_its_release(site: Site, client: Client, act: Act, publishable: Callable[..., Run]) -> None:
    first = client.get(f"{CELLS}?limit=1").json()
    publishing.approve(publishable(log=make_log(0.0311), model="aaa-new"), act)
    publishing.release(act)
    second = client.get(CELLS, {"limit": 1, "cursor": first["next"]}).json()
    assert (first["release"], second["release"], client.get(CELLS).json()["release"]) == (1, 1, 2)
    assert "next" in client.get(f"{CELLS}?limit=1")["Link"]


@pytest.mark.parametrize("sort", ["run_id", "-run_id", "score", "-score"])
def test_pages_of_runs_hold_every_visible_run_once(sort: str, site: Site, client: Client) -> None:
    whole = client.get(f"/api/v1/runs?sort={sort}").json()
    assert list(walk(client, f"/api/v1/runs?sort={sort}&limit=2")) == whole["results"]
    assert whole["count"] == 5
    assert site["pending"].run_id not in str(whole)


def test_sorting_runs_by_score_tells_nothing_of_scores_that_are_not_shown(site: Site, client: Client) -> None:
    for sort in ("score", "-score"):
        rows = client.get(f"/api/v1/runs?sort={sort}").json()["results"]
        hidden = [row["run_id"] for row in rows if row["score"] is None]
        assert hidden == sorted(hidden)
        assert [row["score"] for row in rows[-3:]] == [None] * 3


def test_filters_choose_what_the_rows_say(site: Site, client: Client) -> None:
    for address in (CELLS, "/api/v1/runs"):
        rows = client.get(address).json()["results"]
        for name, read in {
            "status": lambda row: row["status"],
            "model": lambda row: row["entrant"]["model"]["slug"],
            "harness": lambda row: row["entrant"]["harness"],
            "effort": lambda row: row["entrant"]["effort"],
            "lab": lambda row: row["entrant"]["model"]["lab"] or "",
            "gpu": lambda row: row["gpu"],
            "problem": lambda row: row["problem"],
            "verdict": lambda row: row["audit"]["verdict"] if "audit" in row else row["verdict"],
        }.items():
            for value in {read(row) for row in rows}:
                found = client.get(address, {name: value})
                assert found.json()["results"] == [row for row in rows if read(row) == value]
                assert int(found["X-Total-Count"]) == found.json()["count"] == len(found.json()["results"])
        for code in {reason["code"] for row in rows for reason in row["reasons"]}:
            wanted = [row for row in rows if any(reason["code"] == code for reason in row["reasons"])]
            assert client.get(address, {"reason": code}).json()["results"] == wanted
    assert client.get(f"{CELLS}?since=2026-07-02").json()["count"] == 0
    assert client.get(f"{CELLS}?since=2026-07-01T12:00:00Z").json()["count"] == 1


def test_what_a_run_is_written_in_is_read_from_its_source_and_can_be_chosen(
    site: Site, publishable: Callable[..., Run], act: Act, client: Client
) -> None:
    run = publishable(log=make_log(0.0513), model="mixed", solution="import torch\nimport triton\nimport helion\n")
    publishing.approve(run, act)
    publishing.release(act)
    for address in (CELLS, "/api/v1/runs"):
        found = {row["run_id"]: row["framework"] for row in client.get(address).json()["results"]}
        assert found[run.run_id] == "triton+helion" and set(found.values()) == {"triton+helion", "pytorch"}
        for word, size in (("triton", 1), ("helion", 1), ("pytorch", len(found) - 1), ("cuda", 0)):
            assert client.get(address, {"framework": word}).json()["count"] == size, (address, word)
        refused = client.get(address, {"framework": "cud"})
        assert refused.status_code == 422 and "accepted are cuda, cutlass" in refused.json()["detail"]
    html = client.get("/boards/hard/H200/?framework=triton").content.decode()
    assert "mixed" in html and ">shown" not in html.partition("<tbody>")[2]
    assert '<option value="helion">helion</option>' in html and 'value="triton" selected' in html
    twin = client.get("/boards/hard/H200/.json?framework=triton").json()
    assert [row["entrant"]["model"]["slug"] for row in twin["rows"]] == ["mixed"]
    runs = client.get("/runs/?framework=helion").content.decode()
    assert run.run_id in runs and site["published"].run_id not in runs


def test_fields_choose_what_a_row_holds(site: Site, client: Client) -> None:
    rows = client.get(f"{CELLS}?fields=score,id").json()["results"]
    assert all(list(row) == ["score", "id"] for row in rows)


def test_only_the_evidence_of_its_own_run_holds_a_withheld_number(site: Site, client: Client) -> None:
    run = site["withheld"]
    data = client.get(f"/api/v1/runs/{run}").json()
    evidence = data.pop("evidence")
    assert evidence["reported"] == run.reported_text
    assert evidence["is_result"] is False
    assert data["score"] is None
    assert run.reported_text not in str(data)
    assert client.get(f"/api/v1/runs/{site['pending']}").status_code == 404


def test_findings_carry_titles_and_no_numbers(site: Site, client: Client) -> None:
    rows = list(walk(client, "/api/v1/findings?limit=1"))
    assert len(rows) == client.get("/api/v1/findings").json()["count"] > 2
    assert all("message" not in row and "data" not in row for row in rows)
    assert client.get("/api/v1/findings?severity=block&gpu=H200&code=gpu.unproven").json()["count"] == 1


def test_the_documentation_page_needs_no_script_and_lists_every_operation(client: Client, db: None) -> None:
    page = client.get("/api/v1/docs")
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "unsafe" not in page["Content-Security-Policy"]
    text = page.content.decode()
    for methods in document["paths"].values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in text
    assert "onclick" not in text and "http://cdn" not in text
