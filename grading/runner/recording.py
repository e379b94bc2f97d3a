"""Parent: one run, from the workspace of its children to its archive directory."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

import msgspec

from grading.card import find_card, name_inside
from grading.hardware import Gpu, identify, peaks_digest
from grading.problem import Problem
from grading.record import model_slug
from grading.runner.child import Measured
from grading.runner.device import Identity, Reading, identify_device, read_device
from grading.runner.job import Job, may_use_forbidden, reference_path
from grading.timing import METHOD_VERSION

ROOT = Path(__file__).parents[2]
TIMED_OUT = 124
_SCORE = re.compile(r"^peak_fraction:\s*([0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?\s*$", re.MULTILINE)
_FRAMEWORKS = (
    ("ptx", r"asm volatile|mma\.sync|tcgen05\."),
    ("cutlass3", r"cute::|cutlass/gemm/collective"),
    ("cutlass2", r"cutlass::"),
    ("cuda_wmma", r"nvcuda::wmma|wmma::fragment"),
    ("triton", r"@triton\.jit|^\s*import triton|from triton"),
    ("cuda_raw", r"__global__"),
)


@dataclass(frozen=True)
class Entrant:
    """Who is being run: the run id's parts, and the solution's text."""

    harness: str
    model: str
    solution: str
    run_group: str = ""


@dataclass(frozen=True)
class Limits:
    """Seconds that each phase may take; the deck's own by default."""

    check_seconds: int = 1800
    benchmark_seconds: int = 1800


@dataclass
class Phase:
    """One child that ran: its exit code (124 = timed out), seconds, log, and what it measured if it came to its end."""

    exit_code: int
    elapsed_seconds: int
    log: str
    measured: Measured | None

    @property
    def is_complete(self) -> bool:
        """Tell whether the child came to its own end: status 0, and its closing file written."""
        return self.exit_code == 0 and self.measured is not None


@dataclass
class Recording:
    """A run in progress. Call `run_check`, then `run_benchmark`, then `write`."""

    problem: Problem
    gpu: Gpu
    job: Job
    entrant: Entrant
    limits: Limits = Limits()
    is_check_shared: bool = False
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    check: Phase | None = None
    benchmark: Phase | None = None
    identity: Identity | None = None
    before: Reading | None = None
    after: Reading | None = None
    is_template_mutated: bool = False
    workspace: Path = field(init=False)

    @property
    def run_id(self) -> str:
        """Return the run's id in the decks' grammar."""
        stamp = self.started.strftime("%Y%m%d_%H%M%S")
        return f"{stamp}_{self.entrant.harness}_{model_slug(self.entrant.model)}_{self.problem.id}"

    @property
    def is_correct(self) -> bool:
        """Tell whether the check ended well and said PASS on exactly one line."""
        if self.check is None or not self.check.is_complete:
            return False
        return self.check.log.splitlines().count("PASS") == 1 and not self.is_template_mutated

    @property
    def score_text(self) -> str | None:
        """Return the headline as printed, when the benchmark ended well and printed exactly one."""
        if self.benchmark is None or not self.benchmark.is_complete:
            return None
        found = [match.group().partition(":")[2].strip() for match in _SCORE.finditer(self.benchmark.log)]
        return found[0] if len(found) == 1 else None

    def run_check(self) -> None:
        """Run the deck's check in a child; the run starts now."""
        self.started, self.workspace = datetime.now(UTC), Path(mkdtemp(prefix="run-"))
        reference = Path(self.job.reference).read_text(encoding="utf-8")
        texts = {
            "reference.py": reference,
            "shapes.py": f"SHAPES = {self.job.shapes!r}\n",
            "solution.py": self.entrant.solution,
        }
        for name, text in texts.items():
            (self.workspace / name).write_text(text, encoding="utf-8")
        exempt = may_use_forbidden(self.entrant.harness, self.entrant.solution)
        forbidden = [] if exempt else self.job.forbidden_text
        job = msgspec.structs.replace(self.job, forbidden_text=forbidden, device=name_inside(self.job.device))
        (self.workspace / "job.json").write_bytes(msgspec.json.encode(job))
        self.check = self._run_child("check", self.limits.check_seconds, texts)

    def run_benchmark(self) -> None:
        """Run the deck's benchmark in a child, if the check passed."""
        if not self.is_correct:
            return
        self.identity, self.before = identify_device(self.job.device), read_device(self.job.device)
        names = ("reference.py", "shapes.py", "solution.py")
        texts = {name: (self.workspace / name).read_text(encoding="utf-8") for name in names}
        self.benchmark = self._run_child("benchmark", self.limits.benchmark_seconds, texts)
        self.after = read_device(self.job.device)

    def write(self, out: Path) -> Path:
        """Write the run directory under ``out``, remove the workspace, and return the directory."""
        directory = out / self.run_id
        directory.mkdir(parents=True)
        for name, phase in (("check.log", self.check), ("benchmark.log", self.benchmark)):
            if phase is not None:
                (directory / name).write_text(phase.log, encoding="utf-8")
        (directory / "solution.py").write_text(self.entrant.solution, encoding="utf-8")
        (directory / "framework.txt").write_text(label_framework(self.entrant.solution) + "\n", encoding="utf-8")
        for name, content in (("result.json", self._result()), ("environment.json", self._environment())):
            data = msgspec.json.format(msgspec.json.encode(content), indent=2)
            (directory / name).write_bytes(data + b"\n")
        shutil.rmtree(self.workspace)
        return directory

    def _run_child(self, phase: str, limit_seconds: int, fixed: dict[str, str]) -> Phase:
        out, log = self.workspace / f"{phase}.json", self.workspace / f"{phase}.log"
        command = [sys.executable, "-m", "grading.runner.child", phase, "job.json", out.name]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
        card = find_card(self.job.device)
        environment |= card.environment if card else {}
        started = time.monotonic()
        with log.open("wb") as stream:
            exit_code = _wait(command, self.workspace, environment, stream, limit_seconds)
        elapsed = round(time.monotonic() - started)
        changed = [name for name, text in fixed.items() if (self.workspace / name).read_text(encoding="utf-8") != text]
        self.is_template_mutated |= bool(changed)
        measured = msgspec.json.decode(out.read_bytes(), type=Measured) if out.exists() else None
        text = log.read_text(encoding="utf-8", errors="replace")
        for path, name in ((self.workspace, "."), (ROOT, "<checkout>"), (sys.prefix, "<python>")):
            text = text.replace(str(path), name)
        return Phase(exit_code, elapsed, text, measured)

    def _failure_reason(self) -> str:
        if self.is_correct and self.score_text is not None:
            return "pass"
        if self.is_correct:
            timed_out = self.benchmark is not None and self.benchmark.exit_code == TIMED_OUT
            return "benchmark_timeout" if timed_out else "benchmark_failed"
        if self.is_template_mutated:
            return "template_mutated"
        return "check_timeout" if self.check and self.check.exit_code == TIMED_OUT else "check_failed"

    def _result(self) -> dict[str, object]:
        finished, check, benchmark = datetime.now(UTC), self.check, self.benchmark
        reason = self._failure_reason()
        result: dict[str, object] = {
            "run_id": self.run_id,
            "run_group": self.entrant.run_group,
            "problem": self.problem.id,
            "harness": self.entrant.harness,
            "model": self.entrant.model,
            "reasoning_effort": "",
            "started_at": self.started.isoformat(timespec="seconds"),
            "finished_at": finished.isoformat(timespec="seconds"),
            "start_epoch": int(self.started.timestamp()),
            "end_epoch": int(finished.timestamp()),
            "has_solution": True,
            "correct": self.is_correct,
            "failure_reason": reason,
            "retryable_infra_failure": reason.endswith("_timeout"),
            "peak_fraction": msgspec.Raw(self.score_text.encode()) if self.score_text else None,
            "template_mutated": self.is_template_mutated,
            "total_elapsed_seconds": int((finished - self.started).total_seconds()),
            "check_elapsed_seconds": check.elapsed_seconds if check else None,
            "benchmark_elapsed_seconds": benchmark.elapsed_seconds if benchmark else None,
            "check_timeout_seconds": self.limits.check_seconds,
            "benchmark_timeout_seconds": self.limits.benchmark_seconds,
            "check_exit_code": check.exit_code if check else None,
            "benchmark_exit_code": benchmark.exit_code if benchmark else None,
            "usage": {},
        }
        if self.identity:
            result["gpu_name"] = self.identity.name
        return result

    def _environment(self) -> dict[str, object]:
        measured = next((phase.measured for phase in (self.benchmark, self.check) if phase and phase.measured), None)
        identity, timed = self.identity or identify_device(self.job.device), self.benchmark and self.benchmark.measured
        name = identity.name if identity else "CPU" if self.job.device == "cpu" else None
        return {
            "schema": 1,
            "run_id": self.run_id,
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "gpu": self.gpu.key,
            "proven_gpus": identify(name) if name else [],
            "device_name": name,
            "device_uuid": identity.uuid if identity else None,
            "driver": identity.driver if identity else None,
            "cuda": measured.cuda if measured else None,
            "torch": measured.torch if measured else None,
            "triton": measured.triton if measured else None,
            "python": measured.python if measured else None,
            "before": self.before,
            "after": self.after,
            "method_version": METHOD_VERSION,
            "problem_version": self.problem.version,
            "reference_digest": _digest(reference_path(self.problem).read_bytes()),
            "solution_digest": _digest(self.entrant.solution.encode()),
            "peak_version": self.gpu.current.version,
            "peak_digest": peaks_digest(self.gpu),
            "warmup": self.job.warmup,
            "trials": self.job.trials,
            "flush_bytes": self.job.flush_bytes,
            "statistic": "median",
            "is_check_shared": self.is_check_shared,
            "is_benchmark_alone": True,
            "forbidden_text_applied": not may_use_forbidden(self.entrant.harness, self.entrant.solution),
            "inputs_drawn_on": measured.inputs_drawn_on if measured else None,
            "samples_ms": timed.samples_ms if timed else [],
            "empty_call_ms": timed.empty_call_ms if timed else [],
        }


def label_framework(solution: str) -> str:
    """Return the deck's label of a solution's text: the first that matches."""
    return next((name for name, pattern in _FRAMEWORKS if re.search(pattern, solution, re.MULTILINE)), "unknown")


def _wait(command: list[str], folder: Path, environment: dict[str, str], log: BinaryIO, limit_seconds: int) -> int:
    """Run a command with its own process group; return its exit code, 124 when the group had to be ended."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return TIMED_OUT


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
