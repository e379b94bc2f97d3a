"""Fixtures of all tests: the corpus where it is present, a fixed clock, and the guard that required tests ran."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from leaderboard.ingest import Report, Source, ingest_paths
from leaderboard.models import Run
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.database import Ingest, load_run, make_user
from tests.factories import make_audit_text, write_archive

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)

_REQUIRED = set(os.environ.get("PROOFLINE_REQUIRE", "").split())
_ran: set[str] = set()
_skipped: dict[str, str] = {}


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real results; the test skips, and says so, where it is absent."""
    if not CORPUS.is_dir():
        pytest.skip("the shared corpus is not beside this checkout")
    return CORPUS


@pytest.fixture
def now() -> datetime.datetime:
    """The moment at which every test decides and reads."""
    return NOW


@pytest.fixture
def approver(db: None) -> User:
    """A person who decides."""
    return make_user("ada", "approver", email="ada@example.org")


@pytest.fixture
def act(approver: User, now: datetime.datetime) -> Act:
    """A decision's who, why and when."""
    return Act(approver, "Read the evidence.", now)


@pytest.fixture
def ingest(db: None, now: datetime.datetime) -> Ingest:
    """Ingest paths and assess what was touched."""

    def run(*paths: Path, **options: Any) -> Report:
        report = ingest_paths(paths, Source(now), **options)
        recompute_all(runs=report.touched)
        return report

    return run


@pytest.fixture
def publishable(tmp_path: Path, ingest: Ingest) -> Callable[..., Run]:
    """Make a run that is eligible unless its fields or its audit say otherwise."""

    def make(
        verdict: str | None = "clean", *, model: str = "gpt-test", problem: str = "07_w4a16_gemm", **fields: Any
    ) -> Run:
        folder = write_archive(tmp_path / "archive", problem_id=problem, model=model, **fields)
        paths = [folder]
        if verdict is not None:
            audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
            audit.parent.mkdir(parents=True, exist_ok=True)
            audit.write_text(make_audit_text(folder.name, verdict))
            paths.append(audit)
        ingest(*paths)
        return load_run(folder.name)

    return make


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which kinds of required tests ran and which skipped."""
    for kind in _REQUIRED & set(report.keywords):
        if report.skipped:
            _skipped[report.nodeid] = kind
        elif report.when == "call":
            _ran.add(kind)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in which a required kind of test skipped or did not run at all."""
    if hasattr(session.config, "workerinput") or not _REQUIRED:
        return
    if _skipped or _REQUIRED - _ran:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the required tests that did not run."""
    for nodeid, kind in _skipped.items():
        terminalreporter.write_line(f"REQUIRED BUT SKIPPED ({kind}): {nodeid}", red=True)
    for kind in sorted(_REQUIRED - _ran):
        terminalreporter.write_line(f"REQUIRED BUT NOT RUN: {kind}", red=True)
