"""Fixtures of all tests: the corpus where it is present, a fixed clock, and the guard that required tests ran."""

import datetime
import os
from pathlib import Path

import pytest

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
