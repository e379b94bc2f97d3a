"""Names with markup, formulas, control characters or marks of direction stay text on every surface."""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from django.test import Client

from leaderboard import publishing
from leaderboard.csvtext import unguard
from leaderboard.models import Run
from leaderboard.publishing import Act
from leaderboard.selection import cell_id
from tests.api.helpers import PROBLEM, body_of

NAMES = [
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "{{7*7}}",
    "</script><script>alert(1)</script>",
    "=10+20+cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(1)",
    "智谱",
    "🚀",
    "\u202eevil",
    "e\u0301",
    "a\u200db",
    "]]>&amp;",
    "x" * 300,
]
SURFACES = [
    "/feed.xml", "/corrections.xml", "/sitemap.xml", "/llms.txt", "/index.json", "/boards/hard/H200.json",
    "/models.json", "/runs.json", "/problems.json", "/api/v1/cells", "/api/v1/runs", "/api/v1/models",
    "/api/v1/cells.csv",
    "/api/v1/cells.ndjson", "/api/v1/runs.csv", "/api/v1/measurements.ndjson", f"/chart/hard/H200/{PROBLEM.id}.svg",
    f"/problems/hard/{PROBLEM.id}/feed.xml",
]  # fmt: skip


@pytest.fixture
def named(hostile: Callable[[str, str], Run], act: Act) -> dict[str, Run]:
    """One published run per name, in one release."""
    runs = {name: hostile(name, f"20260702_1200{index:02d}") for index, name in enumerate(NAMES)}
    publishing.release(act)
    return runs


def test_every_surface_answers_and_parses(named: dict[str, Run], client: Client) -> None:
    for address in SURFACES:
        response = client.get(address)
        body = body_of(response)
        assert response.status_code == 200, address
        if "xml" in response["Content-Type"]:
            tree = ElementTree.fromstring(body)
            assert {element.tag.rpartition("}")[2] for element in tree.iter()}.isdisjoint({"script", "img"})
        elif "json" in response["Content-Type"] and "nd" not in response["Content-Type"]:
            json.loads(body)
    for run in named.values():
        for address in (f"/badge/{cell_id(run)}.svg", f"/models/{run.entrant.model.slug}/feed.xml"):
            response = client.get(address)
            assert response.status_code == 200
            ElementTree.fromstring(response.content)
            assert b"<script" not in response.content and b"<img" not in response.content


def test_names_come_back_as_they_were_given(named: dict[str, Run], client: Client) -> None:
    cells = client.get("/api/v1/cells?limit=500").json()["results"]
    assert {cell["entrant"]["model"]["name"] for cell in cells} == set(NAMES)
    assert {cell["audit"]["summary"] for cell in cells} == set(NAMES)
    rows = list(csv.DictReader(io.StringIO(body_of(client.get("/api/v1/cells.csv")).decode(), newline="")))
    assert {unguard(row["model_name"]) for row in rows} == set(NAMES)
    assert not [row for row in rows if row["model_name"].startswith(("=", "+", "-", "@"))]
    assert all(cell["id"].isascii() for cell in cells)


def test_a_list_of_hostile_names_is_walked_by_its_cursor(named: dict[str, Run], client: Client) -> None:
    seen, cursor = [], None
    while True:
        page = client.get("/api/v1/runs", {"limit": 4, **({"cursor": cursor} if cursor else {})}).json()
        seen += [row["run_id"] for row in page["results"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(run.run_id for run in named.values())
