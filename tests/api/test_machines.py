"""Feeds, badges, charts, oEmbed, sitemap, llms.txt, and pages as JSON."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html import unescape

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import URLPattern, get_resolver

from leaderboard import machine_urls, publishing
from leaderboard.publishing import Act
from leaderboard.representation import rfc3339
from tests.api.helpers import PROBLEM, Site, body_of

ATOM = {"a": "http://www.w3.org/2005/Atom"}
SITE = "http://127.0.0.1:8000"


def entries(client: Client, address: str) -> list[tuple[str, str, str]]:
    """The (title, id, updated) of a feed's entries."""
    response = client.get(address)
    assert response["Content-Type"] == "application/atom+xml; charset=utf-8"
    root = ElementTree.fromstring(response.content)
    assert root.find("a:id", ATOM).text.startswith("tag:127.0.0.1,2026:")
    return [
        tuple(entry.find(f"a:{name}", ATOM).text for name in ("title", "id", "updated"))
        for entry in root.findall("a:entry", ATOM)
    ]


def test_the_feed_of_releases_names_each_by_a_permanent_id(site: Site, client: Client, act: Act) -> None:
    publishing.release(act)
    assert [(title, name) for title, name, _ in entries(client, "/feed.xml")] == [
        ("Release 2", "tag:127.0.0.1,2026:release:2"),
        ("Release 1", "tag:127.0.0.1,2026:release:1"),
    ]


def test_a_withdrawal_is_a_correction_with_its_date_and_stays_one(site: Site, client: Client, act: Act) -> None:
    run = site["withdrawn"]
    ((title, name, updated),) = entries(client, "/corrections.xml")
    assert title.startswith("Withdrawn: gone")
    assert updated[:19] == act.at.isoformat()[:19]
    publishing.release(act)
    assert name in [entry[1] for entry in entries(client, "/corrections.xml")]
    assert run.reported_text not in client.get("/corrections.xml").content.decode()


def test_evidence_that_blocks_a_published_cell_is_a_correction(site: Site, client: Client, ingest, tmp_path) -> None:
    from tests.factories import make_audit_text

    run = site["published"]
    audit = tmp_path / "more" / "hard" / f"{run.run_id}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(run.run_id, "reward_hack"))
    ingest(audit)
    titles = [title for title, _, _ in entries(client, "/corrections.xml")]
    assert any(title.startswith("Withheld since its release: shown") for title in titles)


def test_a_model_and_a_problem_have_feeds_of_their_own(site: Site, client: Client) -> None:
    assert len(entries(client, "/models/shown/feed.xml")) == 1
    assert len(entries(client, f"/problems/hard/{PROBLEM.id}/feed.xml")) == 4
    assert client.get("/models/quiet/feed.xml").status_code == 404
    assert client.get("/problems/hard/none/feed.xml").json()["code"] == "not_found"


def test_a_badge_is_green_with_a_score_and_grey_without(site: Site, client: Client, act: Act) -> None:
    shown = client.get(f"/badge/{site.cell('published')}.svg")
    assert shown["Content-Type"].startswith("image/svg+xml")
    assert f"{site['published'].assessment.score:.4f}" in shown.content.decode()
    for name in ("withheld", "withdrawn", "failed"):
        text = client.get(f"/badge/{site.cell(name)}.svg").content.decode()
        assert "#7a7a7a" in text and ("withheld" in text or "failed" in text)
    assert client.get(f"/badge/{site.cell('pending')}.svg").status_code == 404
    publishing.withdraw(site["published"], act)
    publishing.release(act)
    assert "#7a7a7a" in client.get(f"/badge/{site.cell('published')}.svg").content.decode()
    data = client.get(f"/badge/{site.cell('published')}.json").json()
    assert (data["schemaVersion"], data["color"], data["message"]) == (1, "lightgrey", "withheld")


def test_a_chart_shows_published_scores_only(site: Site, client: Client) -> None:
    text = client.get(f"/chart/hard/H200/{PROBLEM.id}.svg").content.decode()
    ElementTree.fromstring(text)
    assert "shown" in text and "slower" in text
    assert not any(model in text for model in ("held", "gone", "quiet", "broken"))
    assert client.get("/chart/hard/none/x.svg").status_code == 404


def test_oembed_answers_pictures_of_this_site_only(site: Site, client: Client) -> None:
    for url in (f"{SITE}/runs/{site['published']}/", f"{SITE}/badge/{site.cell('published')}.svg"):
        data = client.get("/oembed", {"url": url}).json()
        assert (data["type"], data["version"]) == ("photo", "1.0")
        assert data["url"] == f"{SITE}/badge/{site.cell('published')}.svg"
        assert client.get(data["url"].removeprefix(SITE)).status_code == 200
    board = client.get("/oembed", {"url": f"{SITE}/boards/hard/H200/"}).json()
    assert (board["url"], board["width"], board["height"]) == (f"{SITE}/boards/hard/H200/card.png", 1200, 630)
    problem = client.get("/oembed", {"url": f"{SITE}/problems/hard/{PROBLEM.id}/"}).json()
    assert problem["url"] == f"{SITE}/chart/hard/H200/{PROBLEM.id}.svg"
    chart = client.get("/oembed", {"url": f"{SITE}/chart/hard/H200/{PROBLEM.id}.svg"}).json()
    assert chart["width"] == 720
    for url in (
        "http://evil.example/runs/x/",
        f"{SITE}/none",
        f"{SITE}/boards/hard/none/",
        f"{SITE}/problems/none/none/",
        f"{SITE}/problems/mini/none/",
        "",
        f"{SITE}/runs/{site['pending']}/",
        "http://[",
        "x" * 5000,
    ):
        assert client.get("/oembed", {"url": url}).status_code == 404
    assert client.get("/oembed", {"url": SITE, "format": "xml"}).status_code == 501


def test_the_sitemap_lists_public_pages_with_their_dates(site: Site, client: Client) -> None:
    root = ElementTree.fromstring(body_of(client.get("/sitemap.xml")))
    pages = {url[0].text.removeprefix(SITE): url[1].text for url in root}
    assert f"/runs/{site['withheld']}/" in pages
    assert site["pending"].run_id not in str(pages)
    assert "/models/quiet/" not in pages
    assert pages["/releases/1/"] == rfc3339(site["published"].publication.decision.at)
    for path in pages:
        assert client.get(path).status_code == 200, path


def test_llms_txt_names_addresses_that_answer(site: Site, client: Client) -> None:
    text = client.get("/llms.txt").content.decode()
    addresses = [part.partition(")")[0] for part in text.split(f"]({SITE}")[1:]]
    assert len(addresses) > 6
    assert all(client.get(address).status_code == 200 for address in addresses)


TWINS = [
    "/", "/boards/hard/H200/", "/models/", "/models/shown/", "/problems/", f"/problems/hard/{PROBLEM.id}/", "/gpus/",
    "/gpus/H200/", "/runs/", "/withheld/", "/releases/", "/releases/1/", "/methodology/", "/compare/", "/data/",
    "/corrections/",
]  # fmt: skip


@pytest.mark.parametrize("page", TWINS)
def test_every_page_has_its_data_beside_it(page: str, site: Site, client: Client) -> None:
    assert client.get(page).status_code == 200
    first = client.get(f"{page}.json")
    second = client.get(f"{page.rstrip('/')}.json" if page != "/" else "/index.json")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    again = client.get(f"{page}.json", headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 304


def test_no_kind_of_page_lacks_its_data() -> None:
    """A new page is a route that ends in a slash; what stands here has no data of its own."""
    without = {"offline/", "styleguide/"}
    routes = {str(item.pattern) for item in get_resolver().url_patterns if isinstance(item, URLPattern)}
    twins = {str(item.pattern).removesuffix(".json") for item in machine_urls.urlpatterns}
    pages = {route for route in routes if route.endswith("/")} - without
    assert len(pages) > 14
    assert sorted(page for page in pages if page.rstrip("/") not in twins) == []


def test_a_comparison_has_its_data_at_its_own_address(site: Site, client: Client) -> None:
    cells = client.get("/api/v1/cells?status=published").json()["results"]
    first, second = (cell["entrant"]["id"] for cell in cells[:2])
    html = client.get(f"/compare/?board=hard/H200&a={first}&b={second}").content.decode()
    (address,) = re.findall(r'type="application/json" title="[^"]*" href="([^"]+)"', html)
    data = client.get(unescape(address)).json()
    assert [entrant["id"] for entrant in data["entrants"]] == [first, second]
    assert data["contests"][0]["wins"] + data["contests"][0]["losses"] + data["contests"][0]["ties"] > 0


@pytest.mark.parametrize("name", ["published", "withheld", "failed"])
def test_a_page_names_the_picture_that_oembed_gives_of_it(site: Site, client: Client, name: str) -> None:
    run = site[name]
    for page in (f"/runs/{run}/", "/boards/hard/H200/", f"/problems/hard/{PROBLEM.id}/"):
        (address,) = re.findall(r'json\+oembed" title="[^"]*" href="([^"]+)"', client.get(page).content.decode())
        answer = client.get(unescape(address).removeprefix(SITE))
        assert answer.status_code == 200, page
        assert client.get(answer.json()["url"].removeprefix(SITE)).status_code == 200, page


def test_a_run_has_the_same_data_beside_its_page_as_in_the_api(site: Site, client: Client) -> None:
    for name in ("published", "withheld"):
        assert client.get(f"/runs/{site[name]}.json").json() == client.get(f"/api/v1/runs/{site[name]}").json()
    assert client.get(f"/runs/{site['pending']}.json").status_code == 404


@pytest.mark.parametrize("address", ["/runs.json", "/feed.xml", "/sitemap.xml", "/gpus.json", "/jobs/1.json"])
def test_a_database_that_does_not_answer_is_told_as_in_the_api(
    address: str, site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OperationalError("secret text")

    monkeypatch.setattr("leaderboard.conditional.read_state", fail)
    monkeypatch.setattr("leaderboard.twins.read_grading", fail)
    monkeypatch.setattr("leaderboard.twins.read_job", fail)
    answer = client.get(address)
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    assert (answer.json()["code"], answer["Retry-After"]) == ("unavailable", "30")
    assert b"secret" not in answer.content and answer["Access-Control-Allow-Origin"] == "*"


def test_only_get_and_head_are_possible(client: Client, db: None) -> None:
    response = client.post("/feed.xml")
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")
    assert json.loads(client.get("/models/none.json").content)["status"] == 404
