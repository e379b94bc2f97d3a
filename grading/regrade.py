"""What the web side makes of a host's evidence: does it answer what was asked, what is the verdict, what are the times.

The host's own verdict is not used: the rules judge the recorded evidence here, held against the times that are
published here. Pure functions; no GPU and no PyTorch.

Source: docs/operate.md "The grading service".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from grading.cpushapes import shapes_for
from grading.evidence import EVIDENCE_SCHEMA, Evidence
from grading.hardware import Gpu
from grading.problem import Problem
from grading.verdict import Verdict, is_settled, judge
from grading.verdict_timing import summarise
from grading.yardstick import mean_value, values_of

_PASSES = {"quick": 1, "full": 2}
_JUDGED = ("verified", "verified_note", "not_reproduced")


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of the host.

    bundle        digest of the sources; None for one of our own references, whose files the deck's parcel fixes
    gates         measured tolerances of the problem, as evidence names them
    published_ms  by shape, the run's own times; empty where the GPU is another one, or times prove nothing
    """

    problem: Problem
    gpu: Gpu
    tier: str
    reference_digest: str
    bundle: str | None
    gates: Mapping[str, Mapping[str, float]]
    published_ms: tuple[float | None, ...] = ()

    @property
    def is_processor(self) -> bool:
        """Tell whether the grade proves answers on small shapes, and no time."""
        return self.gpu.key == "CPU"


@dataclass(frozen=True, slots=True)
class Times:
    """The measured median of each shape in milliseconds (None = no timed answer), and the yardstick kernel's.

    ranges_ms  the 5th and the 95th percentile of each shape; empty where only medians were kept
    """

    shapes_ms: tuple[float | None, ...]
    yardstick_ms: float | None
    ranges_ms: tuple[tuple[float, float] | None, ...] = ()


def misfit(evidence: Evidence, question: Question) -> str | None:
    """Return why evidence does not answer the question, or None."""
    problem, device = question.problem, "cpu" if question.is_processor else "cuda"
    pairs = [
        ("schema", evidence.schema, EVIDENCE_SCHEMA),
        ("problem", evidence.problem, problem.key),
        ("problem_version", evidence.problem_version, problem.version),
        ("reference_digest", evidence.reference_digest, question.reference_digest),
        ("device", evidence.device.partition(":")[0], device),
        ("tier", evidence.tier, question.tier),
        ("gates", evidence.gates, question.gates),
        ("untimed", evidence.untimed, problem.untimed(evidence.intake.form)),
        ("intake.digest", evidence.intake.digest, question.bundle or evidence.intake.digest),
    ]
    for name, found, wanted in pairs:
        if found != wanted:
            return f"{name} is {str(found)[:60]!r}; need {str(wanted)[:60]!r}"
    if not question.gpu.is_proven_by(evidence.device_name or ""):
        return f"device_name is {str(evidence.device_name)[:60]!r}, which does not prove {question.gpu.key}"
    return _incomplete(evidence, question)


def _incomplete(evidence: Evidence, question: Question) -> str | None:
    """Return what a grade that ran to its end lacks, or None."""
    wanted = [
        {name: float(value) for name, value in shape.items()}
        for shape in shapes_for(question.problem, evidence.device, evidence.intake.form)
    ]
    for taken in evidence.passes:
        if taken.ended == "complete" and [shape.shape for shape in taken.shapes] != wanted:
            return f"passes[{taken.number - 1}].shapes are not the problem's"
    goes_on = all(taken.ended == "complete" and not is_settled(taken) for taken in evidence.passes)
    if evidence.passes and goes_on and len(evidence.passes) < _PASSES[question.tier]:
        return f"passes has {len(evidence.passes)} entries; tier {question.tier} needs {_PASSES[question.tier]}"
    return None


def judge_again(evidence: Evidence, question: Question) -> Verdict:
    """Return the verdict that today's rules give on a host's evidence, against the times published here."""
    return judge(msgspec.structs.replace(evidence, published_ms=list(question.published_ms)))


def read_times(evidence: Evidence) -> Times:
    """Return the device's times of a grade's first pass; none of a shape where the grade claims none."""
    if not evidence.passes:
        return Times((), None)
    first = evidence.passes[0]
    found = [None if evidence.untimed else summarise(shape) for shape in first.shapes]
    medians = tuple(item.median_ms if item else None for item in found)
    ranges = tuple((item.p5_ms, item.p95_ms) if item else None for item in found)
    return Times(medians, first.calibration_before_ms, ranges)


def score_of(times: Times, question: Question, verdict: Verdict) -> float | None:
    """Return the problem's metric from a grade's times, or None where it proves none."""
    if question.is_processor or verdict.word not in _JUDGED:
        return None
    values = values_of(question.problem, question.gpu, times.shapes_ms)
    return None if values is None else mean_value(question.problem, values)


def departure(times: Times, record: Times) -> float | None:
    """Return the largest departure of a calibration from the record as a ratio of times above or below 1.

    The shapes' times count by their geometric mean, the yardstick kernel's time by itself. None where nothing compares.
    """
    pairs = list(zip(times.shapes_ms, record.shapes_ms, strict=False))
    if len(times.shapes_ms) != len(record.shapes_ms) or not pairs:
        return None
    logs = [math.log(ms / held) for ms, held in pairs if ms is not None and held is not None and ms > 0 and held > 0]
    if len(logs) != len(pairs):
        return None
    ratios = [math.exp(sum(logs) / len(logs))]
    if times.yardstick_ms and record.yardstick_ms:
        ratios.append(times.yardstick_ms / record.yardstick_ms)
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))
