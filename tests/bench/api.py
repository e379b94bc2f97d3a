"""The API at size: 5,000 cells beside the JSON library alone, 304 beside 200, and a million measurements.

With DATABASE_URL set to a PostgreSQL database of its own the last is also set beside COPY TO STDOUT.
"""

import datetime
import gc
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from grading import record
from grading.hardware import load_gpus
from grading.problem import load_decks
from grading.record import Measurement, Reading
from leaderboard import boards, catalogue, memory, representation
from leaderboard.boards.memo import forget_all
from leaderboard.models import (
    Assessment,
    Decision,
    Entrant,
    LanguageModel,
    Problem,
    Publication,
    Release,
    ReleasedCell,
    Run,
)
from leaderboard.pages.public import memory as pages
from leaderboard.wsgi import application
from tests.factories import make_record

CELLS, LINES_PER_RUN = 5_000, 200
NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
_CHILD = """
import django, time
django.setup()
from django.conf import settings
settings.RATE_LIMITS = {name: (0, 60) for name in settings.RATE_LIMITS}
settings.ALLOWED_HOSTS = ["*"]
from django.test import Client
client = Client()
client.get("/api/v1/gpus")
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
before = peak()
start, lines, size = time.perf_counter(), 0, 0
for chunk in client.get("/api/v1/measurements.ndjson").streaming_content:
    lines += chunk.count(b"\\n"); size += len(chunk)
wall = time.perf_counter() - start
after = peak()
print(f'{{"lines": {lines}, "bytes": {size}, "wall": {wall}, "before_kib": {before}, "after_kib": {after}}}')
"""


def run() -> None:
    """Print what was measured."""
    settings.RATE_LIMITS = {name: (0, 60) for name in settings.RATE_LIMITS}
    settings.ALLOWED_HOSTS = ["*"]
    fill()
    gc.collect()
    gc.freeze()
    _measure_cells()
    _measure_unchanged()
    _measure_lists()
    _measure_lines()
    if connection.vendor == "postgresql":
        _measure_copy()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def fill() -> None:
    """Write a release of published cells straight to the tables, each with a log of many timings."""
    catalogue.sync()
    actor = User.objects.create_user("bench")
    problems = [problem for problem in Problem.objects.filter(deck="hard") if not problem.is_retired]
    model = LanguageModel.objects.create(slug="bench", name="Bench", lab="Lab")
    entrants = Entrant.objects.bulk_create(
        [
            Entrant(slug=f"bench.h{index:04d}", model=model, harness=f"h{index:04d}")
            for index in range(CELLS // len(problems) + 1)
        ]
    )
    decision = Decision.objects.create(
        sequence=1,
        kind="release",
        actor=actor,
        at=NOW,
        reason="bench",
        details={},
        previous_hash="0" * 64,
        hash="1" * 64,
    )
    release = Release.objects.create(
        number=1, digest="d" * 64, note="bench", created_at=NOW, actor=actor, decision=decision
    )
    runs = [
        _make_run(index, problems[index % len(problems)], entrants[index // len(problems)]) for index in range(CELLS)
    ]
    Run.objects.bulk_create(runs, batch_size=500)
    Assessment.objects.bulk_create([_assess(run, index) for index, run in enumerate(runs)], batch_size=500)
    Publication.objects.bulk_create(
        [Publication(run=run, state="approved", decision=decision, evidence_digest="e") for run in runs], batch_size=500
    )
    ReleasedCell.objects.bulk_create([_cell(release, run, index) for index, run in enumerate(runs)], batch_size=500)


def _make_run(index: int, problem: Problem, entrant: Entrant) -> Run:
    definition = load_decks()["hard"].problems[problem.slug]
    made = make_record(definition)
    lines = tuple(
        Measurement(
            str(line % 5),
            "solution",
            "trial",
            (Reading("ms", f"{0.05 + line / 1e4:.6f}", line), Reading("gbps", f"{1000 + line}.125", line)),
        )
        for line in range(LINES_PER_RUN)
    )
    log = msgspec.structs.replace(made.benchmark, measurements=lines)
    stamp = (NOW + datetime.timedelta(seconds=index)).strftime("%Y%m%d_%H%M%S")
    return Run(
        deck_id="hard", gpu_id="H200", run_id=f"{stamp}_bench_model_{problem.slug}", problem=problem, entrant=entrant,
        started_at=NOW, reported_text="0.5000", is_correct=True, content_digest="c" * 64, ingested_at=NOW,
        record=record.encode(msgspec.structs.replace(made, benchmark=log)),
    )  # fmt: skip


def _assess(run: Run, index: int) -> Assessment:
    score = 0.1 + index / (2 * CELLS)
    return Assessment(
        run=run, score=score, score_low=score - 1e-5, score_high=score + 1e-5, shapes=[], standing="eligible",
        blockers=[], waived=[], method_version="1", problem_version="1",
        peak_version=load_gpus()["H200"].current.version, evidence_digest="e", evidence={},
        input_digest="i", verdict="clean",
    )  # fmt: skip


def _cell(release: Release, run: Run, index: int) -> ReleasedCell:
    score = 0.1 + index / (2 * CELLS)
    return ReleasedCell(
        release=release, cell=f"hard.H200.{run.problem.slug}.{run.entrant.slug}", deck_id="hard", problem=run.problem,
        gpu_id="H200", entrant=run.entrant, run=run, status="published", score=score, score_low=score - 1e-5,
        score_high=score + 1e-5, reasons=[],
    )  # fmt: skip


def _best(act: Callable[[], Any], times: int = 9) -> float:
    """Return the median milliseconds of a call."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        found.append((time.perf_counter() - start) * 1e3)
    return sorted(found)[times // 2]


def _serve(address: str, **headers: str) -> tuple[str, dict[str, str], bytes]:
    """Ask the application as a server does, without a client's own costs."""
    path, _, query = address.partition("?")
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query, "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(), **headers,
    }  # fmt: skip
    said: list[Any] = []
    answer = application(environ, lambda status, fields, error=None: said.extend((status, dict(fields))))
    body = b"".join(answer)
    answer.close()
    return said[0], said[1], body


def _rates(*calls: Callable[[], Any]) -> list[float]:
    """Return calls per second of each, in turns, so that a busy machine slows all alike; the best of five turns."""
    best = [0.0] * len(calls)
    for _ in range(5):
        for place, act in enumerate(calls):
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < 0.5:
                act()
                count += 1
            best[place] = max(best[place], count / (time.perf_counter() - start))
    return best


def _measure_cells() -> None:
    client, address = Client(), f"/api/v1/cells?limit={CELLS}"
    cells = boards.read_cells(boards.latest_release(), NOW)
    data = {
        "release": 1,
        "count": len(cells),
        "results": [representation.cell_data(cell) for cell in cells],
        "next": None,
    }
    assert client.get(address).json() == json.loads(orjson.dumps(data))
    alone = _best(lambda: orjson.dumps(data))
    warm = _best(lambda: client.get(address))

    def ask_anew() -> None:
        memory._snapshots.clear()
        forget_all()
        client.get(address)

    cold = [_best(ask_anew, 1) for _ in range(7)]
    size = len(orjson.dumps(data))
    _say(
        f"{CELLS} cells, {size / 1e6:.1f} MB: orjson alone {alone:.1f} ms, answer {warm:.1f} ms ({warm / alone:.2f} x)"
    )
    _say(f"first answer after a change of state {min(cold):.0f} to {max(cold):.0f} ms")


def _measure_unchanged() -> None:
    """Set 304 beside 200 where cells are in memory, and where each state is new, as after every decision."""
    for address in (f"/api/v1/cells?limit={CELLS}", "/api/v1/cells?limit=200"):
        etag = _serve(address)[1]["ETag"]
        assert _serve(address, HTTP_IF_NONE_MATCH=etag)[0].startswith("304")

        def ask_full(address: str = address) -> None:
            _serve(address)

        def ask_again(address: str = address, etag: str = etag) -> None:
            _serve(address, HTTP_IF_NONE_MATCH=etag)

        full, unchanged = _rates(ask_full, ask_again)
        _say(f"{address}: 200 from memory {full:,.0f}/s, 304 {unchanged:,.0f}/s ({unchanged / full:.1f} x)")


def _measure_lists() -> None:
    """Time pages that nobody asked for in this state before."""
    for address in ("/runs/", "/runs/?q=bench", "/runs/?status=withheld", "/api/v1/runs", "/boards/hard/H200/"):

        def ask_anew(address: str = address) -> None:
            pages.clear()
            forget_all()
            assert _serve(address)[0].startswith("200")

        _say(f"{address} of {CELLS:,} runs, asked for the first time: {_best(ask_anew, 5):.0f} ms")


def _measure_lines() -> None:
    environment = {**os.environ, "PYTHONPATH": str(settings.BASE_DIR)}
    done = subprocess.run([sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    _say(
        f"measurements.ndjson: {found['lines']:,} lines, {found['bytes'] / 1e6:.0f} MB in {found['wall']:.1f} s = "
        f"{found['lines'] / found['wall']:,.0f} rows/s; peak memory {found['after_kib'] / 1024:.0f} MiB "
        f"(before it {found['before_kib'] / 1024:.0f} MiB)"
    )


def _measure_copy() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE bench_line AS SELECT 'hard' deck, 'H200' gpu, 'run_' || (i / 200) run_id, "
            "'problem' problem, 'entrant' entrant, 'benchmark.log' file, (i % 5)::text shape, "
            "'solution' variant, 'trial' source, "
            '\'[{"quantity": "ms", "text": "0.050000", "line": 1}, {"quantity": "gbps", "text": "1000.125", '
            '"line": 1}]\' readings FROM generate_series(1, 1000000) i'
        )
        start, size = time.perf_counter(), 0
        with cursor.copy("COPY bench_line TO STDOUT (FORMAT csv)") as copy:
            for chunk in copy:
                size += len(chunk)
        wall = time.perf_counter() - start
    _say(f"COPY TO STDOUT of as many rows: {size / 1e6:.0f} MB in {wall:.1f} s = {1_000_000 / wall:,.0f} rows/s")
