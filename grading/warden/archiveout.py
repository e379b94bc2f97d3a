"""A grade as an archive directory that ``ingest`` reads: record, logs, environment, evidence, verdict, opaque output.

Every line of the logs is the warden's own; what the candidate printed stands in files of its own and is never read.
Times in the logs are those of calls timed as the deck does, whole and on an idle device, where every shape has some:
only they can stand beside other runs of the deck. The device's own times are in the evidence.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from grading.evidence import GRADER_METHOD, ShapeEvidence
from grading.formulas import evaluate
from grading.hardware import Gpu, peaks_digest
from grading.problem import Problem
from grading.record import model_slug
from grading.runner.recording import label_framework
from grading.timing import METHOD_VERSION
from grading.verdict import Verdict
from grading.verdict_timing import Summary, calls_of, summarise
from grading.warden.bundles import Bundle
from grading.warden.grade import Grade
from grading.yardstick import mean_value, values_of

_WALLS = {"tok_s": "decode_wall_s", "sps": "wall_s"}
_RIGHT = ("verified", "verified_note", "not_reproduced", "needs_audit")


@dataclass(frozen=True)
class Entry:
    """What an archive is about."""

    problem: Problem
    gpu: Gpu
    bundle: Bundle
    grade: Grade
    started: datetime
    finished: datetime

    @property
    def run_id(self) -> str:
        """Return the run's id in the decks' grammar."""
        stamp = self.started.strftime("%Y%m%d_%H%M%S")
        return f"{stamp}_{self.bundle.harness}_{model_slug(self.bundle.model)}_{self.problem.id}"


def write_archive(entry: Entry, out: Path) -> Path:
    """Write ``out/<deck>/<gpu>/<run_id>`` in one step, complete or not at all; return it. Raises OSError."""
    target = out / entry.problem.deck / entry.gpu.key / entry.run_id
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(mkdtemp(prefix=".grade-", dir=target.parent))
    try:
        for name, data in _files(entry).items():
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        staging.chmod(0o755)
        os.rename(staging, target)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return target


def summaries(entry: Entry) -> list[Summary | None]:
    """Return the times of each shape in the first pass; none where the grade claims none."""
    evidence = entry.grade.evidence
    shapes = evidence.passes[0].shapes if evidence.passes else []
    return [None if evidence.untimed else summarise(shape) for shape in shapes]


def _is_as_deck(entry: Entry) -> bool:
    """Tell whether the logs print times as the deck takes them: every shape has one, or there are none to print."""
    return not _is_right(entry.grade.verdict) or all(
        time.deck_ms is not None for time in summaries(entry) if time is not None
    )


def _logged_ms(entry: Entry, time: Summary) -> float:
    """Return the time that the logs print: never less than the device's, which clocks outside the worker bound."""
    return max(time.deck_ms, time.median_ms) if time.deck_ms is not None and _is_as_deck(entry) else time.median_ms


def _files(entry: Entry) -> dict[str, bytes]:
    verdict, source = entry.grade.verdict, entry.bundle.files.get("solution.py", b"")
    files = dict(entry.bundle.files)
    for number, output in enumerate(entry.grade.outputs, 1):
        files[f"candidate-output-{number}.log"] = output
    scored = _score(entry)
    files |= {
        "check.log": _check_log(entry).encode(),
        "framework.txt": label_framework(source.decode("utf-8", "replace")).encode() + b"\n",
        "result.json": _pretty(_result(entry, scored)),
        "environment.json": _pretty(_environment(entry)),
        "evidence.json": _pretty(entry.grade.evidence),
        "verdict.json": _pretty(verdict),
    }
    if scored is not None:
        files["benchmark.log"] = _benchmark_log(entry, scored).encode()
    return files


def _is_right(verdict: Verdict) -> bool:
    return verdict.word in _RIGHT


def _score(entry: Entry) -> list[float] | None:
    """Return each shape's value in the problem's metric, or None where there is nothing that can be scored."""
    if not _is_right(entry.grade.verdict) or entry.grade.evidence.device == "cpu":
        return None
    times = [None if time is None else _logged_ms(entry, time) for time in summaries(entry)]
    if entry.problem.metric.kind != "speedup":
        return values_of(entry.problem, entry.gpu, times)
    pairs = [(_baseline_ms(entry, index), ms) for index, ms in enumerate(times)]
    values = [baseline / ms for baseline, ms in pairs if baseline is not None and ms]
    return values if values and len(values) == len(entry.problem.shapes) else None


def _baseline_ms(entry: Entry, index: int) -> float | None:
    """Return the eager solution's time of a shape, where it was timed in this grade and answered."""
    return next((ms for variant, ms in _baseline_times(entry, index) if variant == "eager"), None)


def _baseline_times(entry: Entry, index: int) -> Iterator[tuple[str, float]]:
    """Yield the baselines that answered a shape, with their times in milliseconds."""
    for baseline in entry.grade.evidence.baselines:
        if index < len(baseline.shapes) and _is_answered(baseline.shapes[index]):
            beside = summarise(baseline.shapes[index])
            if beside is not None:
                yield baseline.variant, _logged_ms(entry, beside)


def _headline(entry: Entry, values: list[float]) -> str:
    return f"{mean_value(entry.problem, values):.4f}"


def _check_log(entry: Entry) -> str:
    """Return the decks' lines: the seed from which the cases were drawn, then PASS, or a FAIL for each rule."""
    verdict = entry.grade.verdict
    seeds = [taken.plan_seed for taken in entry.grade.evidence.passes if taken.plan_seed is not None][:1]
    head = "".join(f"PROPERTY_SEED: {seed % (1 << 64)}\n" for seed in seeds)
    if _is_right(verdict):
        return f"{head}PASS\n"
    lines = [f"FAIL: {item.rule} {item.message}" for item in verdict.fired]
    return head + "\n".join(line.replace("\n", " ")[:400] for line in lines or ["FAIL: nothing was verified"]) + "\n"


def _benchmark_log(entry: Entry, values: list[float]) -> str:
    """Return the deck's own lines: the solution's, then the baselines', shape by shape."""
    lines: list[str] = []
    evidence, times = entry.grade.evidence, summaries(entry)
    for index, value in enumerate(values):
        own, time = evidence.passes[0].shapes[index], times[index]
        assert time is not None
        lines += _event_lines(entry, index, own, _logged_ms(entry, time))
        lines += _own_lines(entry, index, _logged_ms(entry, time), value)
        if entry.problem.metric.kind != "speedup":
            lines += [_rate_line(entry, index, variant, ms) for variant, ms in _baseline_times(entry, index)]
    headline = _headline(entry, values)
    passing = float(headline) >= (entry.problem.timing.result_ok or 0.0)
    return "\n".join([*lines, f"peak_fraction: {headline}", f"RESULT: {'OK' if passing else 'LOW'}"]) + "\n"


def _own_lines(entry: Entry, index: int, ms: float, value: float) -> list[str]:
    """Return the deck's lines about the solution's time of one shape."""
    kind = entry.problem.metric.kind
    if kind == "speedup":
        name, baseline_ms = entry.problem.shapes[index][entry.problem.shape_key], _baseline_ms(entry, index)
        own = f"solution {ms:.4f} ms/tok ({1e3 / ms:.0f} tok/s)"
        return [f"shape ctx={name}: {own} | baseline {baseline_ms:.4f} ms/tok | speedup {value:.2f}x"]
    line = _rate_line(entry, index, "solution", ms)
    return [line] if kind == "throughput" else [line, f"shape={index} solution_peak_fraction={value:.4f}"]


def _is_answered(shape: ShapeEvidence) -> bool:
    """Tell whether every call of a shape was answered within its bound."""
    return all(call.fault is None and call.bad == 0 and call.ratio is not None for call in shape.calls)


def _event_lines(entry: Entry, index: int, shape: ShapeEvidence, ms: float) -> list[str]:
    """Return the start and the end of a shape's run, as the decks print them; only the solution has them in order."""
    begin = entry.started + timedelta(seconds=shape.began_s)
    moments = (begin, begin + timedelta(seconds=shape.took_s))
    start, end = (f"variant=solution ts={moment.isoformat(timespec='milliseconds')}" for moment in moments)
    key = entry.problem.shape_key
    name = f"{entry.problem.shapes[index][key]:g}" if key else str(index)
    return [
        f"benchmark_event event=variant_start shape={name} {start}",
        f"benchmark_event event=variant_end shape={name} {end} elapsed_s={shape.took_s:.3f} ms={ms:.6f}",
    ]


def _rate_line(entry: Entry, index: int, variant: str, ms: float) -> str:
    sizes, metric = entry.problem.shapes[index], entry.problem.metric
    if metric.kind == "throughput":
        rate = float(evaluate(metric.work, sizes)) * 1e3 / ms
        return f"shape={index} variant={variant} {metric.rate}={rate:.3f} {_WALLS[metric.rate]}={ms / 1e3:.4f}"
    tflops, gbps = entry.problem.flops(sizes) / (ms * 1e9), entry.problem.bytes(sizes) / (ms * 1e6)
    return f"shape={index} variant={variant} tflops={tflops:.3f} gbps={gbps:.3f} ms={ms:.3f}"


def _result(entry: Entry, values: list[float] | None) -> dict[str, Any]:
    finished, verdict = entry.finished, entry.grade.verdict
    is_right = _is_right(verdict)
    reason = "pass" if values is not None else "benchmark_failed" if is_right else "check_failed"
    return {
        "run_id": entry.run_id,
        "run_group": "grade",
        "problem": entry.problem.id,
        "harness": entry.bundle.harness,
        "model": entry.bundle.model,
        "reasoning_effort": "",
        "started_at": entry.started.isoformat(timespec="seconds"),
        "finished_at": finished.isoformat(timespec="seconds"),
        "start_epoch": int(entry.started.timestamp()),
        "end_epoch": int(finished.timestamp()),
        "has_solution": "solution.py" in entry.bundle.files,
        "correct": is_right,
        "failure_reason": reason,
        "retryable_infra_failure": verdict.word == "inconclusive",
        "peak_fraction": msgspec.Raw(_headline(entry, values).encode()) if values is not None else None,
        "template_mutated": False,
        "total_elapsed_seconds": int((finished - entry.started).total_seconds()),
        "check_exit_code": 0 if is_right else 1,
        "benchmark_exit_code": 0 if values is not None else None,
        "usage": {},
    }


def _environment(entry: Entry) -> dict[str, Any]:
    evidence = entry.grade.evidence
    return {
        "schema": 1,
        "run_id": entry.run_id,
        "recorded_at": entry.finished.isoformat(timespec="seconds"),
        "gpu": "CPU" if evidence.device == "cpu" else entry.gpu.key,
        "device_name": evidence.device_name,
        "device_uuid": evidence.host.get("uuid"),
        "driver": evidence.host.get("driver"),
        "torch": evidence.host.get("torch"),
        "cuda": evidence.host.get("cuda"),
        "triton": evidence.host.get("triton"),
        "method_version": METHOD_VERSION if _is_as_deck(entry) else f"{GRADER_METHOD}{evidence.grader_version}",
        "grader_version": evidence.grader_version,
        "problem_version": evidence.problem_version,
        "reference_digest": evidence.reference_digest,
        "solution_digest": hashlib.sha256(entry.bundle.files.get("solution.py", b"")).hexdigest(),
        "bundle_digest": evidence.intake.digest,
        "peak_version": entry.gpu.current.version,
        "peak_digest": peaks_digest(entry.gpu),
        "tier": evidence.tier,
        "isolation": entry.grade.verdict.isolation,
        "verdict": entry.grade.verdict.word,
        "gpu_seconds": evidence.gpu_seconds,
        "step_seconds": [taken.step_seconds for taken in evidence.passes],
        "shapes": [shape.shape for shape in evidence.passes[0].shapes] if evidence.passes else [],
        "samples_ms": [
            [call.claim_ns / 1e6 for call in calls_of(shape, "as_deck" if _is_as_deck(entry) else "timed")]
            for shape in (evidence.passes[0].shapes if evidence.passes and not evidence.untimed else [])
        ],
        "form": evidence.intake.form,
        "untimed": evidence.untimed,
    }


def _pretty(content: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
