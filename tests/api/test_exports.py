"""Exports: they hold what the API's lists hold, and nothing else."""

import csv
import gzip
import hashlib
import io
import json
import tarfile

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard import publishing
from leaderboard.csvtext import guard, unguard, write_row
from leaderboard.publishing import Act
from tests.api.helpers import Site, body_of

TEXTS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "'quoted",
    "''",
    '"',
    "a,b",
    "a\r\nb",
    " =1",
    "＝1",
    "智谱",
    "",
    "plain",
]


def read_csv(text: str) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_survives_csv_and_is_never_a_formula(text: str) -> None:
    (row,) = csv.reader(io.StringIO(write_row([text, 1.5]), newline=""))
    assert (unguard(row[0]) if row[0] != text else row[0]) in (text, unguard(text))
    assert unguard(guard(text)) == text or guard(text) == text
    assert not row[0].lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "＝"))


def test_missing_and_empty_differ_and_lines_end_as_the_standard_says() -> None:
    assert write_row([None, "", 0, 0.1, True, -1.5]) == ',"",0,0.1,true,-1.5\r\n'


def test_csv_ndjson_and_json_hold_the_same_cells(site: Site, client: Client) -> None:
    rows = client.get("/api/v1/cells").json()["results"]
    lines = [json.loads(line) for line in body_of(client.get("/api/v1/cells.ndjson")).splitlines()]
    assert lines == rows
    table = client.get("/api/v1/cells.csv")
    assert table["Content-Type"] == "text/csv; charset=utf-8; header=present"
    assert table["Content-Disposition"] == 'attachment; filename="proofline-cells-release-1.csv"'
    for row, held in zip(rows, read_csv(body_of(table).decode()), strict=True):
        assert held["id"] == row["id"]
        assert (float(held["score"]) if held["score"] else None) == row["score"]
        assert held["reasons"].split() == [reason["code"] for reason in row["reasons"]]


def test_runs_are_exported_as_they_are_listed(site: Site, client: Client) -> None:
    rows = client.get("/api/v1/runs?sort=run_id").json()["results"]
    assert [json.loads(line) for line in body_of(client.get("/api/v1/runs.ndjson")).splitlines()] == rows
    held = read_csv(body_of(client.get("/api/v1/runs.csv")).decode())
    assert [row["run_id"] for row in held] == [row["run_id"] for row in rows]
    assert site["pending"].run_id not in str(held)


def test_exports_take_the_filters_of_the_lists(site: Site, client: Client) -> None:
    for name in ("cells", "runs"):
        lines = body_of(client.get(f"/api/v1/{name}.ndjson?status=published")).splitlines()
        assert len(lines) == 2
        assert client.get(f"/api/v1/{name}.csv?limit=1").status_code == 422


def test_measurements_are_the_printed_lines_of_published_runs_only(site: Site, client: Client) -> None:
    rows = [json.loads(line) for line in body_of(client.get("/api/v1/measurements.ndjson")).splitlines()]
    assert {row["run_id"] for row in rows} == {site["published"].run_id, site["slower"].run_id}
    texts = {reading["text"] for row in rows for reading in row["readings"] if reading["quantity"] == "ms"}
    assert f"{0.0441 * 1.137:.3f}" in texts
    one = body_of(client.get("/api/v1/measurements.ndjson?model=shown")).splitlines()
    assert 0 < len(one) < len(rows)


def archive_of(client: Client) -> dict[str, bytes]:
    """The files of the first release's archive."""
    data = body_of(client.get("/api/v1/releases/1/archive.tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as bundle:
        return {member.name.partition("/")[2]: bundle.extractfile(member).read() for member in bundle}


def test_the_archive_of_a_release_is_whole_and_checks_out(site: Site, client: Client) -> None:
    files = archive_of(client)
    sums = dict(reversed(line.split("  ")) for line in files["SHA256SUMS"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != "SHA256SUMS"}
    assert files["cells.ndjson"] == body_of(client.get("/api/v1/cells.ndjson"))
    assert files["measurements.ndjson"] == body_of(client.get("/api/v1/measurements.ndjson"))
    croissant = json.loads(files["croissant.json"])
    assert croissant["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    by_name = {entry["name"]: entry for entry in croissant["distribution"]}
    assert by_name["cells.csv"]["sha256"] == sums["cells.csv"]
    columns = files["cells.csv"].decode().partition("\r\n")[0].replace('"', "").split(",")
    assert [field["name"] for field in croissant["recordSet"][0]["field"]] == columns
    assert b"cff-version: 1.2.0" in files["CITATION.cff"]
    assert {"LICENSE", "README.md", "schema/api.json", "schema/record.json", "runs.ndjson"} <= files.keys()


def test_the_archive_has_the_same_bytes_until_the_state_changes(site: Site, client: Client, act: Act) -> None:
    first, second = (client.get("/api/v1/releases/1/archive.tar.gz") for _ in range(2))
    assert body_of(first) == body_of(second)
    assert first["Repr-Digest"] == second["Repr-Digest"]
    publishing.withdraw(site["slower"], act)
    files = archive_of(client)
    assert site["slower"].run_id.encode() not in files["measurements.ndjson"]
    assert site["slower"].reported_text.encode() not in b"".join(files.values())


@pytest.mark.parametrize("what", ["cells", "runs"])
def test_the_command_writes_what_the_api_answers(what: str, site: Site, client: Client, tmp_path, capsys) -> None:
    for kind in ("csv", "ndjson"):
        call_command("export", what, format=kind, output=tmp_path / kind)
        assert (tmp_path / kind).read_bytes() == body_of(client.get(f"/api/v1/{what}.{kind}"))
    call_command("export", what, format="json")
    rows = json.loads(capsys.readouterr().out)
    assert rows == client.get(f"/api/v1/{what}" + ("?sort=run_id" if what == "runs" else "")).json()["results"]


def test_the_command_names_a_release_that_is_not_there(db: None) -> None:
    with pytest.raises(CommandError, match="does not exist"):
        call_command("export", "cells", release=7)
