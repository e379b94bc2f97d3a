"""The same on PostgreSQL: the database tests pass there, and both databases give the same results byte by byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ.get("PROOFLINE_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/postgres")
DATABASE_TESTS = [
    "tests/leaderboard",
    "tests/web/test_review_races.py",
    "tests/service/test_jobs.py",
    "tests/service/test_lease_race.py",
]
NAME = f"proofline_check_{os.getpid()}"
pytestmark = pytest.mark.postgres

DUMP = """
import json
from leaderboard.models import Assessment, Audit, Finding, Rejection, Run
rows = [
    list(Run.objects.order_by("deck", "gpu", "run_id").values_list("deck", "gpu", "run_id", "content_digest")),
    list(Assessment.objects.order_by("run__deck", "run__gpu", "run__run_id").values_list(
        "score", "score_low", "score_high", "standing", "blockers", "shapes", "evidence_digest")),
    list(Finding.objects.order_by("run__deck", "run__gpu", "run__run_id", "position").values_list(
        "code", "severity", "message", "data")),
    list(Audit.objects.order_by("deck", "file").values_list("file", "digest", "verdict", "status")),
    list(Rejection.objects.order_by("path").values_list("path", "reason")),
]
print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def server() -> str:
    """The address of a PostgreSQL server; the test skips, and says so, where none answers."""
    try:
        psycopg.connect(SERVER, connect_timeout=2).close()
    except psycopg.OperationalError:
        pytest.skip("no PostgreSQL server answers; set PROOFLINE_TEST_POSTGRES to use one")
    return SERVER


def run_in(environment: dict[str, str], *command: str, text: str = "") -> str:
    """Run a command of the project with another database; fail with what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_database_tests_pass_on_postgresql(server: str, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": server, "PROOFLINE_VAR_DIR": str(tmp_path), "PROOFLINE_REQUIRE": ""}
    out = run_in(environment, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *DATABASE_TESTS)
    assert " passed" in out
    assert " failed" not in out


@pytest.mark.corpus
def test_both_databases_give_the_same_results(server: str, corpus: Path, tmp_path: Path) -> None:
    address = f"{server.rsplit('/', 1)[0]}/{NAME}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
        try:
            dumps = [dump(url, corpus, tmp_path / str(index)) for index, url in enumerate([address, ""])]
        finally:
            connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")
    assert json.loads(dumps[0]) == json.loads(dumps[1])


def dump(url: str, corpus: Path, folder: Path) -> str:
    """Ingest the corpus into a fresh database and return everything that follows from it."""
    environment = {"PROOFLINE_VAR_DIR": str(folder), **({"DATABASE_URL": url} if url else {})}
    run_in(environment, "manage.py", "migrate", "-v0")
    run_in(environment, "manage.py", "ingest", str(corpus))
    return run_in(environment, "manage.py", "shell", "--no-imports", "-v0", text=DUMP)
