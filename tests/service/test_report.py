"""What a host's time went to, from the events of jobs: figures worked out by hand, and those of a real queue."""

import datetime
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from leaderboard import jobs
from leaderboard.models import HostGpu, Run
from leaderboard.service.report import read_report
from tests.grades import make_gpu, make_job

pytestmark = pytest.mark.django_db
AT = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


def later(seconds: float) -> datetime.datetime:
    return AT + datetime.timedelta(seconds=seconds)


def run_job(run: Run, gpu: HostGpu, asked: float, started: float, ended: float, *, is_lost: bool = False) -> int:
    """Let a job be asked for, taken half a second before its start, graded, and recorded or lost."""
    job, _ = jobs.request(run, jobs.Wish(gpu.gpu_id, "quick", "person"), later(asked))
    return continue_job(job.pk, gpu, started, ended, is_lost=is_lost)


def continue_job(pk: int, gpu: HostGpu, started: float, ended: float, *, is_lost: bool = False) -> int:
    held = jobs.lease(pk, gpu, "a" * 16, later(started - 0.5))
    jobs.extend(pk, held.token, gpu, {}, later(started))
    if is_lost:
        jobs.give_back(pk, held.token, "its host went silent", later(ended))
    else:
        jobs.record(pk, held.token, gpu, later(ended), "verified", "")
    return pk


def report(*arguments: str) -> str:
    out = StringIO()
    call_command("service_report", *arguments, stdout=out)
    return out.getvalue().strip()


@pytest.fixture
def run(publishable) -> Run:
    return publishable()


def test_a_queue_on_one_gpu(run: Run) -> None:
    """Three grades of 10 s: the first starts 1 s after the wish, the others 2 and 4 s after the GPU was free."""
    gpu = make_gpu("H200")
    run_job(run, gpu, asked=0, started=1, ended=11)
    run_job(run, gpu, asked=5, started=13, ended=23)
    run_job(run, gpu, asked=6, started=27, ended=37)
    (host,) = read_report(None, None)
    assert (host.host, host.gpus, host.grades, host.lost) == ("alpha", 1, 3, 0)
    assert (host.wall_seconds, host.busy_seconds, host.busy_share) == (36, 30, 30 / 36)
    assert (host.overhead_median_seconds, host.overhead_longest_seconds) == (2, 4)
    assert host.waited_median_seconds == 8


def test_a_lost_attempt_was_busy_and_its_job_waits_anew(run: Run) -> None:
    gpu = make_gpu("H200")
    pk = run_job(run, gpu, asked=0, started=1, ended=21, is_lost=True)
    continue_job(pk, gpu, 24, 34)
    (host,) = read_report("H200", AT)
    assert (host.grades, host.lost, host.busy_seconds, host.wall_seconds) == (1, 1, 30, 33)
    assert (host.overhead_median_seconds, host.waited_median_seconds) == (2, 2)


def test_hosts_gpus_and_keys_are_told_apart(run: Run) -> None:
    first, second, other = make_gpu("H200"), make_gpu("B200"), make_gpu("H200", "beta")
    run_job(run, first, 0, 1, 11)
    run_job(run, second, 0, 1, 6)
    run_job(run, other, 0, 3, 13)
    make_job(run, "CPU")
    alpha, beta = read_report(None, None)
    assert (alpha.gpus, alpha.busy_share, beta.busy_share) == (2, 15 / 20, 1.0)
    (only,) = read_report("B200", None)
    assert (only.host, only.wall_seconds) == ("alpha", 5)
    assert read_report(None, later(1)) == []


def test_the_command_says_it_in_a_line_and_as_json(run: Run) -> None:
    assert report() == "no grades"
    run_job(run, make_gpu("H200"), asked=0, started=1, ended=11)
    line = "alpha: 1 grade on 1 GPU in 10.0 s, busy 100.0%, overhead 1.00 s a job (longest 1.00), waited 1.0 s"
    assert report("--key", "H200", "--since", "2026-11-30") == f"{line}, 0 attempts lost"
    assert json.loads(report("--json"))[0]["busy_share"] == 1.0
    assert json.loads(report("--json", "--since", "2026-12-01T00:00:00+01:00")) == []


@pytest.mark.parametrize(
    ("arguments", "reason"), [(("--key", "X"), "--key is 'X'"), (("--since", "soon"), "--since is 'soon'; need an ISO")]
)
def test_the_command_says_what_it_cannot_use(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        report(*arguments)
