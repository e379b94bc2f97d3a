"""Cases of rules on moments and durations."""

import datetime

from grading.integrity import Context
from grading.logs import read_benchmark
from grading.problem import load_problem
from grading.record import Regrade
from tests.factories import make_benchmark, make_context, make_record

W4 = load_problem("hard", "07_w4a16_gemm")
UTC = datetime.UTC
START = datetime.datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
EPOCH = int(START.timestamp())
LOG = make_benchmark(W4)


def run(**fields: object) -> Context:
    return make_context(make_record(**fields))


def started(*clock: int, offset: int = 0) -> Context:
    zone = datetime.timezone(datetime.timedelta(hours=offset))
    return run(started_at=datetime.datetime(2026, 7, 1, *clock, tzinfo=zone))


def epochs(start: int = 0, agent: int = 60, end: int = 100, **fields: object) -> Context:
    names = {"start_epoch": start, "harness_end_epoch": agent, "end_epoch": end}
    return run(extra={name: str(EPOCH + value) for name, value in names.items()}, **fields)


def received(seconds: int, **fields: object) -> Context:
    record = make_record(finished_at=START, **fields)
    return make_context(record, received_at=START - datetime.timedelta(seconds=seconds))


def events(ms: str = "1.000000", elapsed: str = "0.500", first: str = "00.000", last: str = "00.500") -> Context:
    stamp = "shape=0 variant=solution ts=2026-07-01T12:00:"
    text = (
        f"benchmark_event event=variant_start {stamp}{first}+00:00\n"
        f"benchmark_event event=variant_end {stamp}{last}+00:00 elapsed_s={elapsed} ms={ms}\n"
    )
    return run(benchmark=read_benchmark(text.encode(), "benchmark.log"), benchmark_elapsed_seconds=5)


SPEAKS = [
    ("run.start_mismatch", "half a day away", lambda: started(0, 0)),
    ("run.start_mismatch", "a minute over the two", lambda: started(12, 3)),
    ("run.impossible_times", "an end before the start", lambda: epochs(end=-1)),
    ("run.impossible_times", "the agent ended after the run", lambda: epochs(agent=200)),
    ("run.impossible_times", "a session that lasted otherwise", lambda: epochs(elapsed_seconds=90)),
    ("run.impossible_times", "a total that is no difference", lambda: epochs(total_elapsed_seconds=300)),
    ("run.impossible_times", "no time for the check", lambda: epochs(check_elapsed_seconds=60)),
    ("run.impossible_times", "written and counted start differ", lambda: epochs(started_at=START.replace(minute=5))),
    (
        "run.impossible_times",
        "finished before it started",
        lambda: run(started_at=START, finished_at=START.replace(hour=1)),
    ),
    ("run.impossible_times", "shorter than its session", lambda: run(elapsed_seconds=10, total_elapsed_seconds=5)),
    ("run.impossible_times", "after the archive came", lambda: received(301)),
    (
        "run.impossible_times",
        "the agent's written end differs",
        lambda: run(extra={"harness_end_epoch": str(EPOCH), "harness_finished_at": '"2026-07-01T13:00:00+00:00"'}),
    ),
    ("log.impossible_events", "backwards", lambda: events(first="10.000", last="05.000")),
    ("log.impossible_events", "longer than it prints", lambda: events(last="02.000")),
    ("log.impossible_events", "too short for its calls", lambda: events(ms="100.000000")),
    ("log.outlasts_run", "half a minute in five seconds", lambda: events(elapsed="30.000", last="30.000")),
]
SILENT = [
    ("run.start_mismatch", "to the second", lambda: started(12, 0)),
    ("run.start_mismatch", "two minutes of set-up", lambda: started(12, 2)),
    ("run.start_mismatch", "local time of another zone", lambda: started(12, 0, offset=-7)),
    ("run.start_mismatch", "UTC stamp of a local start", lambda: started(5, 0, offset=-7)),
    ("run.start_mismatch", "not recorded", lambda: run()),
    (
        "run.impossible_times",
        "whole",
        lambda: epochs(elapsed_seconds=60, total_elapsed_seconds=100, check_elapsed_seconds=30),
    ),
    ("run.impossible_times", "rounded by a second", lambda: epochs(elapsed_seconds=61, total_elapsed_seconds=99)),
    ("run.impossible_times", "graded again later", lambda: epochs(check_elapsed_seconds=600, regrade=Regrade())),
    ("run.impossible_times", "a clock five minutes ahead", lambda: received(300)),
    ("run.impossible_times", "nothing recorded", lambda: run()),
    ("log.impossible_events", "as printed", lambda: events()),
    ("log.impossible_events", "whole seconds only", lambda: run(log=LOG)),
    ("log.impossible_events", "exactly half of the calls", lambda: events(ms="20.000000")),
    ("log.outlasts_run", "as recorded", lambda: events()),
    ("log.outlasts_run", "rounded down to the second", lambda: events(elapsed="5.900", last="05.900")),
]
