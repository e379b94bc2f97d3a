"""Boards at size: the number of queries does not follow the number of runs."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard import publishing
from leaderboard.boards.memo import forget_all
from leaderboard.ingest import Source, ingest_paths
from leaderboard.loadgen import write_runs
from leaderboard.models import Audit, Publication, Run
from leaderboard.pages.public import memory
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.factories import make_audit_text

BUDGET = 5


def publish_generated(folder: Path, count: int, act: Act, now: datetime.datetime) -> None:
    """Ingest generated runs with a device name and an audit each, and publish them under one decision."""
    audits = folder / "audits" / "hard"
    audits.mkdir(parents=True)
    for path in write_runs(folder / "runs", count):
        (path / "environment.json").write_text('{"device_name": "NVIDIA H200"}')
        (audits / f"{path.name}.yaml").write_text(make_audit_text(path.name))
    ingest_paths([folder / "runs", audits], Source(now))
    recompute_all()
    runs = Run.objects.select_related("problem", "entrant", "assessment", "publication").order_by("pk")
    decision = publishing.approve(runs[0], act)
    rest = runs.exclude(pk=runs[0].pk).filter(assessment__standing="eligible")
    Publication.objects.bulk_create(
        Publication(run=run, state="approved", decision=decision, evidence_digest=run.assessment.evidence_digest)
        for run in rest
    )
    publishing.release(act)


@pytest.mark.parametrize("count", [20, 2000])
def test_a_board_takes_at_most_five_queries(
    client: Client, tmp_path: Path, act: Act, now: datetime.datetime, count: int
) -> None:
    publish_generated(tmp_path, count, act, now)
    assert Audit.objects.count() == count
    client.get("/boards/hard/H200/")
    memory.clear()
    forget_all()
    with CaptureQueriesContext(connection) as queries:
        response = client.get("/boards/hard/H200/")
    assert response.status_code == 200
    assert b"generated-" in response.content
    assert len(queries) <= BUDGET, [query["sql"][:700] for query in queries]


@pytest.mark.parametrize(
    "address", ["/", "/runs/", "/models/", "/withheld/", "/problems/hard/01_fp8_gemm/", "/gpus/H200/", "/releases/1/"]
)
def test_other_pages_take_the_same_number_of_queries_at_two_sizes(
    client: Client,
    tmp_path: Path,
    act: Act,
    now: datetime.datetime,
    address: str,
    django_assert_max_num_queries: Callable,
) -> None:
    publish_generated(tmp_path, 120, act, now)
    with django_assert_max_num_queries(16):
        assert client.get(address).status_code == 200
