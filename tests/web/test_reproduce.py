"""The lines under "Reproduce it" are run as a reader would run them, from the page to the same number."""

import html as entities
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from leaderboard import publishing
from leaderboard.models import Run
from leaderboard.publishing import Act
from tests.web.conftest import Add

pytestmark = [
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
EAGER = settings.BASE_DIR / "grading/decks/hard/07_w4a16_gemm/solutions/right/eager.py"


@pytest.fixture
def page(clean_log: None, live_server: Any, add: Add, act: Act, settings: Any) -> tuple[Run, str]:
    """A published run and its page, on a site whose address is the server's."""
    settings.SITE_URL = live_server.url
    run = add("good-model", [0.0511, 0.0522, 0.0533, 0.0544, 0.0555], solution=EAGER.read_text())
    publishing.approve(run, act)
    publishing.release(act)
    return run, Client().get(f"/runs/{run}/").content.decode()


def step(html: str, name: str) -> str:
    """Return what the page tells a reader to type."""
    (text,) = re.findall(rf'data-step="{name}">(.*?)</pre>', html, re.DOTALL)
    return entities.unescape(text)


def do(text: str, folder: Path) -> str:
    """Type it into a shell in a folder that has a checkout's `manage.py`, with a database of its own."""
    lines = text.replace("python manage.py", f"{sys.executable} {settings.BASE_DIR / 'manage.py'}")
    environment = {**os.environ, "PROOFLINE_VAR_DIR": str(folder / "var")}
    environment.pop("DATABASE_URL", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_reader_takes_the_files_and_recomputes_the_same_score(page: tuple[Run, str], tmp_path: Path) -> None:
    run, html = page
    folder = tmp_path / "reader"
    folder.mkdir()
    assert do(step(html, "take"), folder).count(": OK") == 5
    do("python manage.py migrate --verbosity 0", folder)
    told = do(step(html, "recompute"), folder)
    assert "1 run new" in told and f"{run.assessment.score:.4f}" in told


def test_a_changed_file_is_noticed(page: tuple[Run, str], tmp_path: Path) -> None:
    _, html = page
    text = re.sub(r"(?m)^[0-9a-f]{64}", "0" * 64, step(html, "take"), count=1)
    with pytest.raises(AssertionError, match="FAILED"):
        do(text, tmp_path)


@pytest.mark.skipif(find_spec("torch") is None, reason="grading needs PyTorch")
def test_a_reader_without_a_gpu_checks_the_answers(page: tuple[Run, str], tmp_path: Path) -> None:
    _, html = page
    folder = tmp_path / "reader"
    folder.mkdir()
    do(step(html, "take"), folder)
    assert "verdict: verified" in do(step(html, "check"), folder)


def test_the_line_for_a_gpu_differs_from_the_checked_one_by_device_and_tier_alone(page: tuple[Run, str]) -> None:
    run, html = page
    measured = step(html, "measure").replace("--device cuda:0 --gpu H200 --tier full", "--device cpu --tier quick")
    assert measured == step(html, "check") and f"--gpu {run.gpu_id}" in step(html, "measure")
