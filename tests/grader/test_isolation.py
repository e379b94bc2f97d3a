"""What a candidate can reach from inside its jail, and that the secret is nowhere there before its reveal."""

import json
import os
import sys
from pathlib import Path

import pytest

from grading.warden.grade import grade
from grading.warden.jail import choose_stage
from grading.warden.onepass import Pass
from grading.warden.oraclehost import OracleHost
from grading.warden.process import Program, environment_of
from tests.grader.cards import DRIVER_OF_TWO
from tests.grader.support import HERE, grade_source, make_request
from tests.grader.test_robustness import descendants

pytest.importorskip("torch", reason="the oracle and the worker need PyTorch")
HONEST = (HERE / "honest" / "h13_loud_comments.py").read_text()
PROBE = """
import ctypes, errno, json, os, socket, sys
import pathlib

def attempt(action):
    try:
        return str(action())
    except BaseException as error:
        return f"refused: {type(error).__name__}"

def remap():
    import mmap, re
    for line in open("/proc/self/maps"):
        if "arena" in line:
            return "has arenas"
    return "none yet"

libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    return "allowed" if result >= 0 else errno.errorcode[ctypes.get_errno()]

FOUND = {
    "uid": os.getuid(),
    "groups": os.getgroups(),
    "environment": dict(os.environ),
    "processes": sorted(name for name in os.listdir("/proc") if name.isdigit()),
    "root": sorted(os.listdir("/")),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "connect": attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
    "write_root": attempt(lambda: pathlib.Path("/x").write_text("x")),
    "write_bundle": attempt(lambda: pathlib.Path("solution.py").write_text("x")),
    "write_library": attempt(lambda: pathlib.Path(os.__file__).write_text("x")),
    "import_verdict": attempt(lambda: __import__("grading.verdict")),
    "import_oracle": attempt(lambda: __import__("grading.oracle.session")),
    "decks": attempt(lambda: sorted(os.listdir(pathlib.Path(sys.modules["grading"].__file__).parent))),
    "ptrace": call(101, 0, 0, 0, 0),
    "unshare": call(272, 0x10000000),
    "mount": call(165, b"none", b"/tmp", b"tmpfs", 0, 0),
    "bpf": call(321, 0, 0, 0),
    "kill_init": attempt(lambda: os.kill(1, 9)),
    "setuid": attempt(lambda: os.setuid(0)),
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))],
}
print("FOUND " + json.dumps(FOUND), flush=True)
"""


@pytest.fixture(scope="module")
def found(host: OracleHost) -> dict:
    done = grade_source("M", PROBE + HONEST, host)
    line = next(line for line in done.outputs[0].decode().splitlines() if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND ")) | {"isolation": done.verdict.isolation}


def test_the_candidate_is_nobody_with_no_rights(found: dict) -> None:
    if found["isolation"] != "A":
        pytest.skip(f"this host isolates to level {found['isolation']} only")
    assert found["uid"] >= 61000
    assert found["groups"] == []
    assert found["privileges"] == ["0000000000000000", "1"]
    assert found["setuid"].startswith("refused")
    assert {found[name] for name in ("ptrace", "unshare", "mount", "bpf")} == {"EPERM"}


def test_it_sees_its_own_processes_and_no_network(found: dict) -> None:
    if found["isolation"] != "A":
        pytest.skip(f"this host isolates to level {found['isolation']} only")
    assert len(found["processes"]) == 2
    assert found["interfaces"] == ["lo"]
    assert found["connect"].startswith("refused")
    assert found["kill_init"].startswith("refused")


def test_it_cannot_write_outside_of_its_scratch(found: dict) -> None:
    if found["isolation"] != "A":
        pytest.skip(f"this host isolates to level {found['isolation']} only")
    assert all(found[name].startswith("refused") for name in ("write_root", "write_bundle", "write_library"))


def test_it_holds_nothing_that_compares_or_judges(found: dict) -> None:
    assert found["import_verdict"].startswith("refused")
    assert found["import_oracle"].startswith("refused")
    assert found["decks"] == "['__init__.py', 'worker']"


def test_a_jail_shows_its_own_card_whatever_the_host_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock, clocks and foreign processes go by the driver's numbers; CUDA's own default counts by speed."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setitem(sys.modules, "pynvml", DRIVER_OF_TWO)
    found = environment_of(Program("worker", "grading.worker.main", (), 61000, [], device="cuda:1"))
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and found["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_its_environment_is_an_allow_list(found: dict) -> None:
    os.environ.get("PATH")
    assert "DJANGO_SETTINGS_MODULE" not in found["environment"]
    assert len(found["environment"]) <= 14


def test_a_helper_cannot_stand_in_for_a_module_before_the_import(host: OracleHost) -> None:
    seen: list[str] = []
    done = grade(
        make_request("M", {"solution.py": HONEST.encode(), "json.py": b"raise RuntimeError('shadowed')\n"}),
        lambda name, taken: seen.append(name),
        host,
    )
    assert "build" in seen
    assert done.evidence.passes[0].isolation["worker"]["uid"] != 0


CUTTER = """
import os

for descriptor in range(3, 64):
    try:
        os.ftruncate(descriptor, 0)
        print("CUT", descriptor, os.readlink(f"/proc/self/fd/{descriptor}"), flush=True)
    except OSError:
        pass
"""


def test_shared_memory_cannot_be_cut_off_under_its_readers(host: OracleHost) -> None:
    at_call = HONEST.replace("        return Ref", "        exec(CUTTER)\n        return Ref")
    done = grade_source("M", f"CUTTER = {CUTTER!r}\n{CUTTER}\n{at_call}", host)
    assert b"CUT" not in done.outputs[0]
    assert done.verdict.word == "verified"
    assert host.is_alive


def test_the_secret_is_nowhere_in_the_worker_before_its_reveal(host: OracleHost) -> None:
    dumps: list[bytes] = []

    def look(name: str, taken: Pass) -> None:
        if name in ("shape 0 call", "close") and len(dumps) < 2 and taken.worker is not None and len(taken.calls) != 1:
            for pid in descendants(taken.worker.pid):
                dumps.append(read_memory(pid))

    done = grade_source("M", HONEST, host, on_step=look)
    secret = bytes.fromhex(done.evidence.passes[0].secret)
    commitment = done.evidence.passes[0].commitment
    assert len(dumps) >= 2
    assert max(len(dump) for dump in dumps) > 10 << 20
    for dump in dumps:
        assert secret not in dump
        assert secret.hex().encode() not in dump
        assert commitment.encode() not in dump


def read_memory(pid: int) -> bytes:
    """Return a process's writable memory, arguments and environment."""
    parts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(text, 16) for text in span.split("-"))
            if "w" not in rights or end - start > 256 << 20:
                continue
            try:
                memory.seek(start)
                parts.append(memory.read(end - start))
            except (OSError, OverflowError):
                continue
    return b"".join(parts)


def test_two_grades_draw_two_secrets(host: OracleHost) -> None:
    first, second = (grade_source("M", HONEST, host).evidence.passes[0] for _ in range(2))
    assert first.secret != second.secret
    assert first.plan_seed != second.plan_seed


def test_the_root_is_not_built_where_it_would_hide_what_it_must_show() -> None:
    assert choose_stage(["/usr", "/mnt/checkout/grading"]) != "/mnt"
    assert choose_stage(["/usr", "/tmp/checkout/grading"]) == "/mnt"
