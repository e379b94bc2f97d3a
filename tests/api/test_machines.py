"""Feeds, badges, charts, oEmbed, sitemap, llms.txt, and pages as JSON."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from django.test import Client

from leaderboard import publishing
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
    chart = client.get("/oembed", {"url": f"{SITE}/chart/hard/H200/{PROBLEM.id}.svg"}).json()
    assert chart["width"] == 720
    for url in (
        "http://evil.example/runs/x/",
        f"{SITE}/none",
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
    "/gpus/H200/", "/runs/", "/withheld/", "/releases/", "/releases/1/", "/methodology/",
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


def test_a_run_has_the_same_data_beside_its_page_as_in_the_api(site: Site, client: Client) -> None:
    for name in ("published", "withheld"):
        assert client.get(f"/runs/{site[name]}.json").json() == client.get(f"/api/v1/runs/{site[name]}").json()
    assert client.get(f"/runs/{site['pending']}.json").status_code == 404


def test_only_get_and_head_are_possible(client: Client, db: None) -> None:
    response = client.post("/feed.xml")
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")
    assert json.loads(client.get("/models/none.json").content)["status"] == 404
