"""One oracle serves all grades of a test process; tests that need PyTorch skip without it."""

from collections.abc import Iterator

import pytest

from grading.warden.oraclehost import OracleHost
from tests.grader.support import OPS


@pytest.fixture(scope="session")
def host() -> Iterator[OracleHost]:
    pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")
    with OracleHost("cpu", [OPS]) as running:
        names = set(running.child.read_report().get("namespaces", []))
        if not {"mount", "pid", "net"} <= names:
            pytest.skip(f"this host keeps no candidate from its grader: it has {sorted(names)} only")
        yield running
