"""Whatever dies, hangs or floods: the grade says inconclusive, and leaves no process, file or lock."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grading.warden.onepass import Pass
from grading.warden.oraclehost import OracleHost
from grading.warden.process import ROOT, Limits
from grading.warden.talk import Deadlines
from tests.grader.support import HERE, OPS, grade_source, make_request

HONEST = (HERE / "honest" / "h13_loud_comments.py").read_text()
MODEL = HONEST.partition("import torch\n")[2]
DEADLINES = Deadlines(start=90, build=60, step=30, call=15, end=5)
pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")


def processes_of_jails() -> set[int]:
    """Return the pids that belong to a jail of this checkout's graders."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"grading.warden import jail" in line or b"grading.worker.main" in line:
                found.add(int(entry.name))
    return found


def leftovers() -> set[str]:
    """Return control groups and temporary folders of graders."""
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/proofline-*")}
    return groups | {str(path) for path in Path("/tmp").glob(".grade-*")}


def descendants(pid: int) -> set[int]:
    """Return all processes below one."""
    try:
        children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()
    return children | {deep for child in children for deep in descendants(child)}


def wait_until_gone(pids: set[int], seconds: float = 10) -> set[int]:
    """Return the pids that still run after a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.1)
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


@pytest.fixture(autouse=True)
def nothing_stays(host: OracleHost):
    """Every test of this module leaves as many descendants and files as it found, apart from the shared oracle."""
    files = leftovers()
    yield
    kept = descendants(host.child.pid) | {host.child.pid}
    assert wait_until_gone(descendants(os.getpid()) - kept) == set()
    mine = {path for path in leftovers() - files if path.rpartition("-")[2] not in {str(pid) for pid in kept}}
    assert {path for path in mine if not Path("/proc", path.rpartition("-")[2]).exists()} == set()


def kill_at(step: str, of: Callable[[Pass], int]) -> Callable[[str, Pass], None]:
    """Return a hook that kills one process when a step begins, once."""
    done: list[str] = []

    def hook(name: str, taken: Pass) -> None:
        if name == step and not done:
            done.append(name)
            victims = descendants(of(taken)) | {of(taken)}
            for pid in sorted(victims, reverse=True):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    return hook


@pytest.mark.parametrize("step", ["build", "commit", "shape 0 call", "close"])
def test_a_worker_killed_at_any_step_is_inconclusive(step: str, host: OracleHost) -> None:
    hook = kill_at(step, lambda taken: taken.worker.pid)
    done = grade_source("M", HONEST, host, on_step=hook, deadlines=DEADLINES)
    assert done.verdict.word == "inconclusive", done.verdict.fired
    assert done.evidence.passes[0].ended == "died"


@pytest.mark.parametrize("step", ["build", "shape 0 call"])
def test_an_oracle_killed_at_any_step_is_inconclusive(step: str) -> None:
    with OracleHost("cpu", [OPS]) as own:
        done = grade_source("M", HONEST, own, on_step=kill_at(step, lambda taken: own.child.pid), deadlines=DEADLINES)
    assert done.verdict.word == "inconclusive"
    assert done.evidence.passes[0].ended == "oracle"


def test_a_killed_warden_takes_everything_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "grade", "toy/M", "--decks", str(OPS), "--out", str(tmp_path)]
    source = tmp_path / "solution.py"
    source.write_text(MODEL_WITH_SLEEP)
    warden = subprocess.Popen(
        [*command, "--solution", str(source)], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert warden.stderr is not None
    for line in warden.stderr:
        if "call" in line:
            break
    below = descendants(warden.pid)
    assert len(below) >= 6
    warden.kill()
    warden.wait()
    warden.stderr.close()
    assert wait_until_gone(below) == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["solution.py"]


MODEL_WITH_SLEEP = HONEST.replace(
    "        return Ref", "        import time\n\n        time.sleep(0.2)\n        return Ref"
)


def test_a_hang_in_import_times_out(host: OracleHost) -> None:
    source = "import time\ntime.sleep(600)\n"
    done = grade_source("M", source, host, deadlines=Deadlines(start=90, build=2, step=30, call=15))
    assert done.verdict.word == "inconclusive"
    assert done.verdict.rules() == {"grade.timeout"}


def test_a_doorbell_that_is_never_answered_times_out(host: OracleHost) -> None:
    source = HONEST.replace("        return Ref", "        while True:\n            pass\n        return Ref")
    done = grade_source("M", source, host, deadlines=Deadlines(start=90, build=60, step=30, call=2))
    assert done.verdict.rules() == {"grade.timeout"}


def test_a_fork_bomb_is_stopped(host: OracleHost) -> None:
    source = HONEST.replace(
        "import torch\n",
        "import os\nimport time\n\nimport torch\n\ncount = 0\ntry:\n    while count < 3000:\n"
        "        if os.fork() == 0:\n            time.sleep(600)\n        count += 1\n"
        "except OSError:\n    raise RuntimeError(f'stopped after {count} forks') from None\n",
        1,
    )
    limits = Limits(processes=40)
    done = grade_source("M", source, host, deadlines=DEADLINES, limits=limits)
    assert done.verdict.word == "inconclusive"
    stopped = re.search(r"stopped after (\d+) forks", done.evidence.passes[0].detail)
    assert stopped is not None, done.evidence.passes[0].detail
    assert int(stopped[1]) < 40


def test_two_gigabytes_of_output_are_cut_off(host: OracleHost) -> None:
    source = "import os\nblock = b'A' * (1 << 20)\nfor _ in range(2048):\n    os.write(1, block)\n"
    done = grade_source("M", source, host, deadlines=DEADLINES)
    assert done.verdict.word == "inconclusive"
    assert done.verdict.rules() == {"grade.output"}
    assert len(done.outputs[0]) <= 256 * 1024


def test_a_full_scratch_disk_is_the_candidates_own_problem(host: OracleHost) -> None:
    source = HONEST.replace(
        "import torch\n",
        "import torch\n\nwith open('/tmp/full', 'wb') as stream:\n    for _ in range(64):\n"
        "        stream.write(b'A' * (1 << 20))\n",
        1,
    )
    done = grade_source("M", source, host, deadlines=DEADLINES, limits=Limits(scratch_bytes=16 << 20))
    assert done.verdict.word == "inconclusive"


def test_an_oracle_that_was_left_in_the_middle_is_replaced(host: OracleHost) -> None:
    before = host.child.pid
    leaves = HONEST.replace("        return Ref", "        import os\n\n        os._exit(0)\n        return Ref")
    assert grade_source("M", leaves, host, deadlines=DEADLINES).verdict.rules() == {"grade.worker_ended"}
    assert grade_source("M", HONEST, host, deadlines=DEADLINES).verdict.word == "verified"
    assert host.child.pid != before


def test_a_request_for_a_problem_without_small_shapes_names_those_that_have_some() -> None:
    assert make_request("M", {}).problem.key == "toy/M"
