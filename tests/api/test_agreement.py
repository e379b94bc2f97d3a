"""On real results: pages, JSON, CSV, NDJSON, page data and badges say the same of every cell, and nothing leaks."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.test import Client

from leaderboard import publishing
from leaderboard.ingest import Source, ingest_paths
from leaderboard.models import Run
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.api.helpers import body_of, walk

pytestmark = [pytest.mark.corpus, pytest.mark.django_db]
_NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture
def released(corpus: Path, act: Act) -> list[Run]:
    """The corpus, released under a historical-reuse decision; one of its results was withdrawn since."""
    ingest_paths([corpus], Source(act.at))
    recompute_all()
    for deck in ("hard", "cuda"):
        runs = list(Run.objects.filter(deck=deck, findings__code="gpu.unproven"))
        publishing.waive("gpu.unproven", runs, act, batch="archive", is_reuse=True)
    related = ("problem", "entrant", "assessment", "publication")
    eligible = list(Run.objects.filter(assessment__standing="eligible").select_related(*related).order_by("pk"))
    publishing.approve_many(eligible, act, is_acknowledged=True)
    publishing.release(act)
    publishing.withdraw(eligible[0], act)
    return list(Run.objects.select_related(*related))


class _Cells(HTMLParser):
    """Reads what a board's table says: run addresses with the text of the table cell they stand in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "td":
            self.links, self.text = [], ""
        if tag == "a" and (href := dict(attrs).get("href") or "").startswith("/runs/"):
            self.links.append(href)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.found.update(dict.fromkeys(self.links, self.text))


def test_every_surface_says_the_same_of_every_cell(released: list[Run], client: Client) -> None:
    cells = list(walk(client, "/api/v1/cells?limit=50"))
    assert len(cells) == client.get("/api/v1/cells").json()["count"] > 150
    lines = [json.loads(line) for line in body_of(client.get("/api/v1/cells.ndjson")).splitlines()]
    table = list(csv.DictReader(io.StringIO(body_of(client.get("/api/v1/cells.csv")).decode(), newline="")))
    boards, pages = {}, _Cells()
    for deck, gpu in {(cell["deck"], cell["gpu"]) for cell in cells}:
        data = client.get(f"/boards/{deck}/{gpu}.json").json()
        boards.update({cell["id"]: cell for row in data["rows"] for cell in row["cells"] if cell})
        pages.feed(client.get(f"/boards/{deck}/{gpu}/").content.decode())
    for cell, line, row in zip(cells, lines, table, strict=True):
        assert cell == line == boards[cell["id"]]
        assert (row["id"], row["status"], row["run_id"]) == (cell["id"], cell["status"], cell["run_id"])
        assert (float(row["score"]) if row["score"] else None) == cell["score"]
        badge = client.get(f"/badge/{cell['id']}.svg").content.decode()
        text = pages.found[f"/runs/{cell['deck']}/{cell['gpu']}/{cell['run_id']}/"]
        if cell["score"] is None:
            assert "#7a7a7a" in badge and cell["status"] in badge
            assert not [number for number in _NUMBER.findall(text) if float(number) > 0 and len(number) > 5]
        else:
            shown = _NUMBER.findall(text)[0]
            assert float(shown) == pytest.approx(cell["score"], abs=10 ** -len(shown.partition(".")[2]))
            assert shown in badge


def test_runs_and_cells_agree(released: list[Run], client: Client) -> None:
    runs = {(row["deck"], row["gpu"], row["run_id"]): row for row in walk(client, "/api/v1/runs?limit=60")}
    for cell in walk(client, "/api/v1/cells"):
        row = runs[cell["deck"], cell["gpu"], cell["run_id"]]
        assert (row["status"], row["score"], row["entrant"]) == (cell["status"], cell["score"], cell["entrant"])
        one = client.get(f"/api/v1/cells/{cell['id']}").json()
        assert one == cell
    pending = [run for run in released if run.assessment.standing == "pending"]
    assert not {(run.deck_id, run.gpu_id, run.run_id) for run in pending} & runs.keys()


def test_no_list_feed_or_export_holds_the_digits_of_a_result_that_is_none(released: list[Run], client: Client) -> None:
    shown = {row["run_id"]: row for row in walk(client, "/api/v1/runs?status=published")}
    addresses = [
        "/api/v1/cells", "/api/v1/cells.csv", "/api/v1/cells.ndjson", "/api/v1/runs", "/api/v1/runs.csv",
        "/api/v1/runs.ndjson", "/api/v1/findings", "/feed.xml", "/corrections.xml", "/withheld.json", "/runs.json",
        "/index.json", "/sitemap.xml", "/llms.txt", "/releases/1.json",
    ]  # fmt: skip
    text = "\n".join(body_of(client.get(address)).decode() for address in addresses)
    for run in released:
        if run.run_id in shown or run.assessment.score is None:
            continue
        for value in (run.assessment.score, run.assessment.score_low, run.assessment.score_high):
            assert repr(value) not in text, run
