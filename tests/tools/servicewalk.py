"""Walk through the grading service by its documented commands, on this machine's GPU or processor.

    python -m tests.tools.servicewalk --device cuda --gpu H200 --out DIR
    python -m tests.tools.servicewalk --device cpu --gpu CPU --only 'eager_(03|05)' --tolerance 0.001 --out DIR

A fresh site with the demo archive, the embedded broker, one host: its first calibration is accepted, runs are graded on
a person's wish and their pages are fetched, a queue of quick grades is worked off, and last the host is slowed down
from outside and asked to prove itself again. ``walk.json`` holds the times and what the pages said. A busy processor
slows its calibration by a few percent only, so there a narrow tolerance shows the quarantine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.service.support import ROOT, Site, free_port, wait_for

_BURNER = """
import sys, torch
torch.set_num_threads(max(torch.get_num_threads(), 2))
device = sys.argv[1]
sys.stdin.readline()
size = 8192 if device.startswith("cuda") else 1024
left = torch.randn(size, size, device=device)
while True:
    left @ left
    if device.startswith("cuda"):
        torch.cuda.synchronize()
"""
_OPEN = "state IN ('requested', 'queued', 'leased', 'running')"
_RUNS = """
SELECT r.deck_id, r.gpu_id, r.run_id FROM leaderboard_run r JOIN leaderboard_publication u ON u.run_id = r.id
ORDER BY r.problem_id, r.run_id
"""


class Walk:
    """One site, what was done there, and when."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.started, self.steps = options, time.monotonic(), []
        self.found: dict[str, Any] = {"device": options.device, "gpu": options.gpu, "steps": self.steps}
        folder: Path = options.out.resolve()
        (folder / "broker").mkdir(parents=True)
        environment = {"PROOFLINE_LEASE_SECONDS": "30", "PROOFLINE_JOB_ATTEMPTS": "3"}
        environment |= {"PROOFLINE_RATE_VERIFICATION": "0/60"}
        if options.tolerance:
            environment["PROOFLINE_CALIBRATION_TOLERANCES"] = f"default={options.tolerance},CPU={options.tolerance}"
        self.site = Site(folder, f"filesystem://{folder / 'broker'}", "", **environment)
        self.port = free_port()

    def say(self, text: str, **found: Any) -> None:
        """Note a step and print it."""
        at = round(time.monotonic() - self.started, 1)
        self.steps.append({"at": at, "step": text, **found})
        self.options.out.joinpath("walk.json").write_text(json.dumps(self.found, indent=1))
        sys.stdout.write(f"{at:7.1f} s  {text}{'  ' + json.dumps(found) if found else ''}\n")
        sys.stdout.flush()

    def page(self, path: str) -> str:
        """Fetch a page as a reader would."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def open_site(self) -> None:
        """Load the demo archive, serve it, and start the web side of the service."""
        demo = [sys.executable, "manage.py", "demo", "leaderboard/demo", "--port", str(self.port)]
        self.site.start("demo", demo, self.site.environment)
        wait_for(self._answers, 180, "the site")
        self.site.key = self.site.run("manage.py", "host", "add", "walk").strip()
        self.site.start_control()
        self.say("the site serves the demo archive")

    def _answers(self) -> bool:
        try:
            return "Proofline" in self.page("/")
        except OSError:
            return False

    def accept_host(self) -> None:
        """Start the host; a person makes its first calibration the record of its key."""
        began = time.monotonic()
        self.site.start_host(device=self.options.device)
        wait_for(lambda: self.site.count("calibration"), 240, "the first calibration")
        figures = self.site.rows("SELECT word, reason, figures FROM leaderboard_calibration")[0]
        self.say("first calibration", seconds=round(time.monotonic() - began, 1), word=figures[0], reason=figures[1])
        self.say(self.site.run("manage.py", "host", "accept", "walk", "--as", "demo").strip())
        self.site.wait_until_ready(1)

    def chosen(self, pattern: str) -> list[str]:
        """Return the published runs whose id holds one of the wanted words."""
        return [row for row in ("/".join(row) for row in self.site.rows(_RUNS)) if re.search(pattern, row)]

    def verify(self, runs: list[str], tier: str) -> list[int]:
        """Ask for grades as a person does; return the jobs."""
        before = self.site.count("gradejob")
        key = ["--gpu", self.options.gpu] if self.options.gpu else []
        for run in runs:
            self.site.run("manage.py", "verify", run, "--tier", tier, "--as", "demo", *key)
        rows = self.site.rows("SELECT id FROM leaderboard_gradejob ORDER BY id")
        return [row[0] for row in rows[before:]]

    def wait_for_jobs(self, numbers: list[int], seconds: float) -> None:
        """Wait until no job of these still waits or runs."""
        marks = ",".join(map(str, numbers))
        wait_for(lambda: not self.site.count("gradejob", f"id IN ({marks}) AND {_OPEN}"), seconds, "the grades")

    def grade(self) -> None:
        """Grade every chosen run once, and look at its page and its board as a reader does."""
        runs = self.chosen(self.options.only)
        numbers = self.verify(runs, self.options.tier)
        self.wait_for_jobs(numbers, self.options.seconds)
        words = dict(
            self.site.rows(
                "SELECT r.run_id, v.word FROM leaderboard_verification v JOIN leaderboard_run r ON r.id = v.run_id"
            )
        )
        for run in runs:
            text = self.page(f"/runs/{run}/")
            (self.options.out / f"{run.rpartition('/')[2]}.html").write_text(text)
            shown = re.findall(r'class="verified[^"]*"[^>]*>(.*?)</', text, re.S)
            self.say("graded", run=run, verdict=words.get(run.rpartition("/")[2]), page=" ".join(shown[:1]).strip())
        deck, gpu, _ = runs[0].split("/")
        board = self.page(f"/boards/{deck}/{gpu}/")
        self.say("board", marks=len(re.findall(r"mark--verified|verified-mark|class=\"verified", board)))

    def work_off(self) -> None:
        """Keep a queue of quick grades filled until enough are asked for; report how much of the time the GPU was busy.

        A run has one open job at a time, so each is asked for again once its last grade is there.
        """
        runs, wanted = self.chosen(self.options.queued), self.options.queue
        numbers: list[int] = []
        while len(numbers) < wanted:
            taken = (
                f"SELECT r.run_id FROM leaderboard_gradejob j JOIN leaderboard_run r ON r.id = j.run_id WHERE {_OPEN}"
            )
            waiting = {row[0] for row in self.site.rows(taken)}
            free = [run for run in runs if run.rpartition("/")[2] not in waiting]
            numbers += self.verify(free[: wanted - len(numbers)], "quick")
            time.sleep(0.2)
        self.wait_for_jobs(numbers, self.options.seconds)
        marks = ",".join(map(str, numbers))
        counted = f"SELECT kind, count(*) FROM leaderboard_gradeevent WHERE job_id IN ({marks}) GROUP BY kind"
        self.found["events"] = dict(self.site.rows(f"{counted} ORDER BY kind"))
        report = self.site.run("manage.py", "service_report", "--json")
        self.found["report"] = json.loads(report)
        self.say(f"a queue of {wanted} quick grades", report=self.found["report"])

    def slow_down(self) -> None:
        """Keep the device busy from outside and ask the host to prove itself again."""
        device = self.options.device if self.options.device != "cuda" else "cuda:0"
        count = 1 if device.startswith("cuda") else 2 * (os.cpu_count() or 1)
        command = [sys.executable, "-c", _BURNER, device]
        burners = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(count)]
        try:
            self.site.run("manage.py", "host", "release", "walk")
            running = "kind = 'calibration' AND state = 'running'"
            wait_for(lambda: self.site.count("gradejob", running), 120, "a calibration")
            for burner in burners:
                assert burner.stdin is not None
                burner.stdin.write("go\n")
                burner.stdin.flush()
            wait_for(lambda: self.site.count("hostgpu", "state IN ('quarantined', 'healthy')"), 400, "its end")
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()
        state, reason = self.site.rows("SELECT state, reason FROM leaderboard_hostgpu")[0]
        self.say(f"the slowed host is {state}", reason=reason)
        self.say(self.site.run("manage.py", "host", "list").strip())


def main(arguments: list[str]) -> int:
    """Walk; what was seen until a step failed stays in walk.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.servicewalk", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpu", default="", help="key to ask for, where it is not the runs' own")
    parser.add_argument("--only", default="reference_(03|05)", help="pattern of the run ids to grade")
    parser.add_argument("--tier", default="quick")
    parser.add_argument(
        "--queued", default="eager_(03|05)|vendor-library_(03|05)", help="the same, of the queue's runs"
    )
    parser.add_argument("--queue", type=int, default=20, help="how many quick grades to queue for the busy share")
    parser.add_argument("--seconds", type=float, default=400, help="how long to wait for grades")
    parser.add_argument("--tolerance", type=float, default=0, help="of calibrations; default: that of the settings")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    walk = Walk(parser.parse_args(arguments))
    try:
        walk.open_site()
        walk.accept_host()
        walk.grade()
        if walk.options.queue:
            walk.work_off()
        walk.slow_down()
    finally:
        walk.site.stop()
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
