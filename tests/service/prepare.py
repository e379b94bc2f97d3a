"""Fill a fresh site for tests of the service, and print the key of its host alpha; needs ``django.setup()`` before.

The site gets runs on the H200 board (the first one right), a member of the staff, and a record that calibrations of a
processor are held against, accepted on a host that is retired since.
"""

import sys
import tempfile
from pathlib import Path

from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from grading.problem import DECKS
from leaderboard.ingest import Source, ingest_paths
from leaderboard.models import Calibration, Host, HostGpu, HostState, Problem
from leaderboard.service import hosts
from tests.factories import write_archive

PROBLEM = "05_topk_bitonic"
RIGHT = DECKS / "hard" / PROBLEM / "solutions" / "right" / "iterated_maximum.py"


def main(runs: int) -> None:
    call_command("migrate", verbosity=0)
    at = timezone.now()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(runs):
            stamp = f"20260701_12{index // 60:02d}{index % 60:02d}"
            source = RIGHT.read_text() if index == 0 else f"import torch\n# {index}\n"
            write_archive(Path(folder), problem_id=PROBLEM, stamp=stamp, solution=source)
        report = ingest_paths([Path(folder)], Source(at))
    assert report.runs_new == runs, report.rejected
    person = User.objects.create_user("ada", is_staff=True)
    gauge = Host.objects.create(name="gauge", registered_at=at, state=HostState.RETIRED)
    row = HostGpu.objects.create(host=gauge, uuid="gauge-0", gpu_id="CPU", name="CPU", state=HostState.RETIRED)
    deck, slug = "hard", PROBLEM
    Calibration.objects.create(
        host_gpu=row,
        gpu_id="CPU",
        problem=Problem.objects.get(deck=deck, slug=slug),
        word="verified",
        figures={"shapes_ms": [1.0, 1.0], "yardstick_ms": None},
        ratio=1.0,
        is_accepted=True,
        is_record=True,
        accepted_by=person,
        evidence_digest="0" * 64,
        recorded_at=at,
    )
    sys.stdout.write(hosts.add("alpha", at).text)
