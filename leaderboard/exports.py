"""Exports as streams of lines: the same data as the API's lists, whole, at constant memory."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
import orjson
from django.db.models import QuerySet

from grading.record import Log
from leaderboard import representation, selection
from leaderboard.boards import Cell
from leaderboard.boards.listing import filter_cells, select_runs, sort_runs
from leaderboard.boards.runs import summarise_all
from leaderboard.csvtext import Value, write_row
from leaderboard.memory import Snapshot
from leaderboard.models import Release, ReleasedCell, Run

_CHUNK_BYTES = 64 * 1024
_RUNS_AT_ONCE = 200
_SHARED: dict[str, Callable[[dict[str, Any]], Value]] = {
    "deck": lambda row: row["deck"],
    "gpu": lambda row: row["gpu"],
    "problem": lambda row: row["problem"],
    "run_id": lambda row: row["run_id"],
    "entrant": lambda row: row["entrant"]["id"],
    "model": lambda row: row["entrant"]["model"]["slug"],
    "model_name": lambda row: row["entrant"]["model"]["name"],
    "lab": lambda row: row["entrant"]["model"]["lab"],
    "harness": lambda row: row["entrant"]["harness"],
    "effort": lambda row: row["entrant"]["effort"],
    "framework": lambda row: row["framework"],
    "status": lambda row: row["status"],
    "verification": lambda row: row["verification"]["verdict"] if row["verification"] else None,
    "verified_at": lambda row: row["verification"]["at"] if row["verification"] else None,
    "verification_gpu": lambda row: row["verification"]["gpu"] if row["verification"] else None,
    "verification_ratio": lambda row: row["verification"]["ratio"] if row["verification"] else None,
    "score": lambda row: row["score"],
    "score_low": lambda row: row["interval"][0] if row["interval"] else None,
    "score_high": lambda row: row["interval"][1] if row["interval"] else None,
    "reasons": lambda row: " ".join(reason["code"] for reason in row["reasons"]),
}
CELL_COLUMNS: dict[str, Callable[[dict[str, Any]], Value]] = {
    "id": lambda row: row["id"],
    **_SHARED,
    "metric": lambda row: row["metric"]["kind"],
    "unit": lambda row: row["metric"]["unit"],
    "higher_is_better": lambda row: row["metric"]["higher_is_better"],
    "rank_low": lambda row: row["rank"][0] if row["rank"] else None,
    "rank_high": lambda row: row["rank"][1] if row["rank"] else None,
    "share_of_best": lambda row: row["share_of_best"],
    "verdict": lambda row: row["audit"]["verdict"] if row["audit"] else None,
    "auditor": lambda row: row["audit"]["auditor"] if row["audit"] else None,
    "audited_at": lambda row: row["audit"]["at"] if row["audit"] else None,
    "audit_summary": lambda row: row["audit"]["summary"] if row["audit"] else None,
    "release": lambda row: row["release"],
}
RUN_COLUMNS: dict[str, Callable[[dict[str, Any]], Value]] = {
    **_SHARED,
    "verdict": lambda row: row["verdict"],
    "started_at": lambda row: row["started_at"],
}


class _Timings(msgspec.Struct):
    """The one part of a stored record that measurements come from."""

    benchmark: Log | None = None


_TIMINGS = msgspec.json.Decoder(_Timings)


def cell_lines(snapshot: Snapshot, filters: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the matching cells as JSON, in order of id."""
    for cell in filter_cells(snapshot.cells, filters):
        yield snapshot.json[cell.id]


def cell_table(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the lines of cells.csv."""
    yield write_row(CELL_COLUMNS)
    for cell in cells:
        data = representation.cell_data(cell)
        yield write_row(read(data) for read in CELL_COLUMNS.values())


def _summaries(filters: Mapping[str, Any], at: datetime.datetime) -> Iterator[dict[str, Any]]:
    runs: QuerySet[Run] = sort_runs(select_runs(filters, at), "run_id")
    stream = runs.iterator(chunk_size=_RUNS_AT_ONCE)
    while batch := list(islice(stream, _RUNS_AT_ONCE)):
        yield from map(representation.run_summary_data, summarise_all(batch, at))


def run_lines(filters: Mapping[str, Any], at: datetime.datetime) -> Iterator[bytes]:
    """Yield the matching visible runs as JSON, in order of run id."""
    return (orjson.dumps(data) for data in _summaries(filters, at))


def named_run_lines(keys: set[tuple[str, str, str]], at: datetime.datetime) -> Iterator[bytes]:
    """Yield those of the visible runs whose (deck, GPU, run id) is named, as JSON, in order of run id."""
    for data in _summaries({}, at):
        if (data["deck"], data["gpu"], data["run_id"]) in keys:
            yield orjson.dumps(data)


def run_table(filters: Mapping[str, Any], at: datetime.datetime) -> Iterator[str]:
    """Yield the lines of runs.csv."""
    yield write_row(RUN_COLUMNS)
    for data in _summaries(filters, at):
        yield write_row(read(data) for read in RUN_COLUMNS.values())


def measurement_lines(release: Release | None, filters: Mapping[str, Any], at: datetime.datetime) -> Iterator[bytes]:
    """Yield every timing line of the runs behind a release's published cells, as printed, in order of cell.

    filters  any of deck, gpu, problem, model
    """
    columns = {"deck": "deck", "gpu": "gpu", "problem": "problem__slug", "model": "entrant__model__slug"}
    chosen = {columns[name]: value for name, value in filters.items() if name in columns}
    rows = ReleasedCell.objects.filter(release=release, status=ReleasedCell.Status.PUBLISHED, **chosen)
    rows = rows.select_related("entrant", "problem", "run__assessment", "run__publication").order_by("pk")
    rows = rows.defer("run__assessment__shapes", "run__assessment__evidence")
    for row in rows.iterator(chunk_size=_RUNS_AT_ONCE):
        if selection.is_showable(row.run, at):
            yield from _run_measurements(row)


def _run_measurements(row: ReleasedCell) -> Iterator[bytes]:
    log = _TIMINGS.decode(bytes(row.run.record)).benchmark
    if log is None:
        return
    head = {
        "deck": row.deck_id, "gpu": row.gpu_id, "run_id": row.run.run_id, "problem": row.problem.slug,
        "entrant": row.entrant.slug, "file": log.file,
    }  # fmt: skip
    for timing in log.measurements:
        readings = [{"quantity": one.quantity, "text": one.text, "line": one.line} for one in timing.readings]
        yield orjson.dumps(
            {**head, "shape": timing.shape, "variant": timing.variant, "source": timing.source, "readings": readings}
        )


def join_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield NDJSON in chunks that are worth sending."""
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield b"\n".join(held) + b"\n"
            held, size = [], 0
    if held:
        yield b"\n".join(held) + b"\n"


def join_text(lines: Iterable[str]) -> Iterator[bytes]:
    """Yield lines that have their ends in chunks that are worth sending."""
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield "".join(held).encode()
            held, size = [], 0
    if held:
        yield "".join(held).encode()
