"""Every command: one summary line, JSON on request, and errors that say what is accepted."""

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from leaderboard.models import Assessment, Audit, Decision, Rejection, Release, Run, Waiver
from tests.database import load_run
from tests.factories import write_archive
from tests.service.support import RECORDED, ROOT, free_port, wait_for

Make = Callable[..., Run]
WHY = ("--as", "ada", "--reason", "Read it.")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command and return what it printed."""

    def call(*arguments: str) -> str:
        capsys.readouterr()
        call_command(*arguments)
        return capsys.readouterr().out.strip()

    return call


def test_ingest_prints_one_line_and_names_rejected_files(
    db: None, tmp_path: Path, run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_archive(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    call_command("ingest", str(tmp_path))
    printed = capsys.readouterr()
    assert printed.out == ("1 run new, 0 already held; 0 audits new, 0 already held; 1 rejected, 0 conflicts\n")
    assert "notes.txt: not part of a run archive" in printed.err
    assert json.loads(run("ingest", str(tmp_path), "--json"))["runs_held"] == 1


def test_ingest_names_a_path_that_does_not_exist(db: None) -> None:
    with pytest.raises(CommandError, match="nowhere does not exist"):
        call_command("ingest", "nowhere")


def test_ingest_takes_deck_and_gpu_where_the_path_does_not_name_them(
    db: None, tmp_path: Path, run: Callable[..., str]
) -> None:
    folder = write_archive(tmp_path)
    moved = folder.rename(tmp_path / folder.name)
    assert run("ingest", str(moved), "--deck", "hard", "--gpu", "H200", "--dry-run").startswith("dry run")
    assert Run.objects.count() == 0
    run("ingest", str(moved), "--deck", "hard", "--gpu", "H200")
    assert Run.objects.count() == 1


def test_the_whole_way_by_commands(publishable: Make, approver: object, run: Callable[..., str]) -> None:
    name = str(publishable())
    assert run("approve", name, *WHY) == "1 run approved, 0 refused"
    assert run("release", *WHY, "--dry-run") == "dry run, nothing stored: 1 published"
    assert run("release", *WHY).startswith("release 1 (")
    assert run("withdraw", name, *WHY) == "withdraw: 1 run decided"
    assert json.loads(run("release", *WHY, "--json"))["cells"] == {"withheld": 1}
    assert run("verify-log") == "4 decisions, chain whole"
    assert Release.objects.count() == 2


def test_approve_refuses_with_the_reason_and_changes_nothing(publishable: Make, approver: object) -> None:
    name = str(publishable(None))
    with pytest.raises(CommandError, match=r"audit\.missing"):
        call_command("approve", name, *WHY)
    assert Decision.objects.count() == 0


def test_approve_eligible_names_what_it_refuses(
    publishable: Make, approver: object, run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    publishable()
    publishable("interesting", stamp="20260702_120000")
    call_command("approve", "--eligible", *WHY)
    printed = capsys.readouterr()
    assert printed.out.strip() == "1 run approved, 1 refused"
    assert "acknowledgement" in printed.err
    assert run("approve", "--eligible", "--acknowledge", *WHY) == "1 run approved, 0 refused"


def test_reject_is_all_or_none(publishable: Make, approver: object, run: Callable[..., str]) -> None:
    name = str(publishable())
    with pytest.raises(CommandError, match="not held"):
        call_command("reject", name, "hard/H200/none", *WHY)
    assert Decision.objects.count() == 0
    assert run("reject", name, *WHY) == "reject: 1 run decided"


def test_waive_covers_the_runs_that_have_the_finding(
    publishable: Make, approver: object, run: Callable[..., str]
) -> None:
    blocked = publishable(device_name=None)
    publishable(stamp="20260702_120000")
    line = run("waive", "gpu.unproven", "--deck", "hard", "--batch", "old", "--reuse", "--expires", "2099-01-31", *WHY)
    assert line == "gpu.unproven waived on 1 run (old)"
    assert Waiver.objects.get().expires_at.isoformat() == "2099-01-31T23:59:59+00:00"
    assert load_run(blocked.run_id).assessment.standing == "eligible"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("waive", "gpu.unproven", "--batch", "b", *WHY), "name runs, or give --deck"),
        (("waive", "gpu.unproven", "--deck", "hard", "--batch", "b", "--expires", "soon", *WHY), "ISO date"),
        (("waive", "gpu.unproven", "--deck", "hard", "--batch", "b", "--expires", "2099-01-01T10:00", *WHY), "offset"),
        (("waive", "no.such", "--deck", "hard", "--batch", "b", *WHY), "accepted are"),
        (("approve", *WHY), "name runs, or give --eligible"),
        (("explain", "hard/H200"), "DECK/GPU/RUN_ID"),
        (("explain", "hard/H200/none"), "not held"),
        (("release", "--as", "nobody", "--reason", "x"), "no active user"),
        (("release", "--as", "ada", "--reason", " "), "reason is empty"),
    ],
)
def test_a_mistake_is_answered_with_what_is_accepted(approver: object, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command(*arguments)


def test_explain_prints_the_table_and_its_json(publishable: Make, run: Callable[..., str]) -> None:
    name = str(publishable())
    text = run("explain", name)
    assert "agrees" in text
    assert "standing    eligible" in text
    data = json.loads(run("explain", name, "--json"))
    assert set(data) >= {
        "deck", "gpu", "run_id", "problem", "metric", "reported", "recomputed", "agrees", "shapes", "findings",
        "eligible", "blockers", "audits",
    }  # fmt: skip
    assert data["recomputed"]["low"] <= data["recomputed"]["value"] <= data["recomputed"]["high"]


def test_loaddecks_checks_and_loads(db: None, run: Callable[..., str]) -> None:
    assert run("loaddecks", "--check").startswith("checked 6 decks")
    assert run("loaddecks").startswith("loaded 6 decks")


def test_recompute_says_what_it_did(publishable: Make, run: Callable[..., str]) -> None:
    publishable()
    assert run("recompute") == "0 runs assessed, 1 unchanged"
    assert run("recompute", "--all") == "1 run assessed, 0 unchanged"


def test_loadgen_writes_archives_that_ingest_takes(db: None, tmp_path: Path, run: Callable[..., str]) -> None:
    assert run("loadgen", "12", "--out", str(tmp_path)) == f"12 runs written to {tmp_path}"
    assert run("ingest", str(tmp_path)).startswith("12 runs new")


def test_the_demo_loads_its_archive_twice_and_publishes(
    db: None, tmp_path: Path, settings: pytest.FixtureRequest, run: Callable[..., str]
) -> None:
    settings.VAR_DIR = tmp_path
    first = run("demo", *RECORDED, "--grades", "leaderboard/recordings", "--no-serve")
    assert "59 runs new" in first and "41 grades new, 0 already held, 0 passed over" in first
    assert "release 1" in first
    assert "password" in first
    second = run("demo", *RECORDED, "--grades", "leaderboard/recordings", "--no-serve")
    assert "0 runs new" in second and "0 grades new" in second
    assert "nothing changed since release 1" in second


def test_the_demo_on_another_port_names_that_port(tmp_path: Path) -> None:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "PROOFLINE_URL")}
    command = [sys.executable, "manage.py", "demo", "leaderboard/demo", "--port", str(port)]
    served = subprocess.Popen(command, cwd=ROOT, env=environment | {"PROOFLINE_VAR_DIR": str(tmp_path)})
    address = f"http://127.0.0.1:{port}/"

    def read_home() -> str:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    try:
        html = wait_for(read_home, 90, "the demo")
    finally:
        # Killed at once, the server would leave its worker behind.
        served.terminate()
        served.wait(timeout=30)
    assert f'<link rel="canonical" href="{address}">' in html and ":8000" not in html
    assert read_home() == "", "ended, the demo leaves nothing behind that answers"


def test_the_demo_archive_reads_without_a_repair(db: None, run: Callable[..., str]) -> None:
    run("ingest", *RECORDED)
    assert set(Audit.objects.values_list("status", flat=True)) == {"read"}
    assert Rejection.objects.count() == 0
    standings = Counter(Assessment.objects.values_list("standing", flat=True))
    assert standings == {"eligible": 42, "blocked": 1, "failed": 15, "pending": 1}
