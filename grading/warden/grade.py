"""A grade: intake, one or two passes, evidence, verdict."""

import hashlib
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Literal

import msgspec

from grading.cpushapes import shapes_for
from grading.evidence import EVIDENCE_SCHEMA, GRADER_VERSION, Baseline, Evidence, Neighbour, PassEvidence
from grading.hardware import Gpu
from grading.neighbours import choose_neighbours, load_moves
from grading.oracle.gates import read_gates
from grading.problem import ADAPTER, Form, Problem, Shape
from grading.verdict import Verdict, has_integrity_lead, is_settled, judge
from grading.warden.form import form_of
from grading.warden.gpustate import read_host
from grading.warden.intake import take_in
from grading.warden.job import DEADLINES, Job
from grading.warden.neighbourpass import run_neighbours
from grading.warden.onepass import Pass
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import BASELINE, BASELINE_GPU, NEIGHBOUR_CALLS, NEIGHBOUR_SECONDS, Effort, effort_of, shared
from grading.warden.process import LIMITS, Limits, limits_on
from grading.warden.talk import Deadlines
from grading.yardstick import unavoidable_bytes, yardstick

Tier = Literal["quick", "full"]
OnStep = Callable[[str, Pass], None]


@dataclass(frozen=True)
class Request:
    """What is to be graded, where, and how thoroughly.

    reference     the problem's ``reference.py``
    is_exempt     our own baselines, which may use what submissions may not
    shapes        stand in for the device's own, for tests
    published_ms  by shape, the times that the grade is held against
    baselines     by variant, bundles of our own that are timed first
    until         on the monotonic clock; shapes beside the listed ones are not begun after it
    """

    problem: Problem
    reference: Path
    bundle: Mapping[str, bytes]
    device: str = "cpu"
    tier: Tier = "quick"
    is_exempt: bool = False
    published_ms: tuple[float | None, ...] = ()
    baselines: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    deadlines: Deadlines = DEADLINES
    limits: Limits = LIMITS
    effort: Effort | None = None
    gpu: Gpu | None = None
    until: float = inf
    shapes: list[Shape] | None = None


@dataclass(frozen=True)
class Grade:
    """What a grade left: evidence, verdict, and the candidate's opaque output by pass."""

    evidence: Evidence
    verdict: Verdict
    outputs: list[bytes]

    def with_gpu_seconds(self, seconds: float | None) -> "Grade":
        """Return the grade with the time for which it held its GPU, known only once it is released."""
        return replace(self, evidence=msgspec.structs.replace(self.evidence, gpu_seconds=seconds))


def grade(request: Request, on_step: OnStep = lambda name, taken: None, host: OracleHost | None = None) -> Grade:
    """Grade a bundle. Returns whatever the candidate does; raises only for faults of the request.

    host  an oracle that already runs and can see the reference; else one is started and ended here
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = read_host(request.device) | {"python": platform.python_version(), "kernel": platform.release()}
    problem = request.problem
    intake = take_in(problem, request.bundle, is_exempt=request.is_exempt)
    form = form_of(problem, request.reference.read_bytes(), request.bundle)
    job = _make_job(request, form)
    taken: list[Pass] = []
    passes: list[PassEvidence] = []
    baselines: list[Baseline] = []
    neighbours: list[Neighbour] = []
    if not intake.refused:
        with _hosted(request, job, host) as used:
            own = _make_job(request, "plain")
            baselines = [_run_baseline(own, variant, used, on_step) for variant in request.baselines.items()]
            passes = _run_passes(job, on_step, used, taken)
            neighbours = _run_neighbours(request, job, passes, used, on_step)
    for each in taken:
        found |= each.versions
    evidence = Evidence(
        schema=EVIDENCE_SCHEMA,
        grader_version=GRADER_VERSION,
        problem=problem.key,
        problem_version=problem.version,
        reference_digest=hashlib.sha256(request.reference.read_bytes()).hexdigest(),
        device=request.device,
        device_name="CPU" if request.device == "cpu" else str(found.get("name")),
        host=found,
        tier=request.tier,
        started_at=started,
        intake=msgspec.structs.replace(intake, form=form),
        forbidden_calls=problem.rules.forbidden_calls,
        passes=passes,
        baselines=baselines,
        neighbours=neighbours,
        published_ms=list(request.published_ms),
        untimed=problem.untimed(form),
        gates=msgspec.to_builtins(job.gates),
    )
    return Grade(evidence, judge(evidence), [each.output for each in taken])


@contextmanager
def _hosted(request: Request, job: Job, host: OracleHost | None) -> Iterator[OracleHost]:
    if host is not None:
        yield host
        return
    with OracleHost(request.device, [request.reference], job.limits) as own:
        yield own


def _run_baseline(job: Job, variant: tuple[str, Mapping[str, bytes]], host: OracleHost, on_step: OnStep) -> Baseline:
    """Time one of our own solutions, in a worker that is gone before the candidate's begins."""
    name, bundle = variant
    effort = BASELINE if job.device == "cpu" else BASELINE_GPU
    own = replace(job, bundle=bundle, effort=effort, has_census=False)
    seen = Pass(own, 0, host, lambda step, taken: on_step(f"{name}: {step}", taken)).run()
    digest = hashlib.sha256(bundle["solution.py"]).hexdigest()
    return Baseline(variant=name, digest=digest, ended=seen.ended, detail=seen.detail, shapes=seen.shapes)


def _run_passes(job: Job, on_step: OnStep, host: OracleHost, taken: list[Pass]) -> list[PassEvidence]:
    """Run as many passes as it takes; put them into ``taken`` and return their evidence."""
    passes: list[PassEvidence] = []
    while _needs_pass(passes, job):
        writable = bool(passes) and is_fault_of_memory(passes[-1])
        number = len(passes)
        taken.append(Pass(_varied(job, number), number + 1, host, on_step, writable_inputs=writable))
        passes.append(taken[-1].run())
    return passes


def is_fault_of_memory(evidence: PassEvidence) -> bool:
    """Tell whether the worker ended as one does that writes to memory which it may only read."""
    if evidence.ended == "device":
        return True
    return evidence.ended == "died" and evidence.signal in (signal.SIGSEGV, signal.SIGBUS)


def _run_neighbours(
    request: Request, job: Job, passes: list[PassEvidence], host: OracleHost, on_step: OnStep
) -> list[Neighbour]:
    """Ask about shapes beside the listed ones, drawn by the first pass's secret, if all passes came to a good end."""
    if not job.effort.neighbours or any(taken.ended != "complete" or is_settled(taken) for taken in passes):
        return []
    count = how_many_neighbours(job.effort, passes[0])
    moves = load_moves(request.reference.parent, request.problem.shape_names)
    shapes = choose_neighbours(job.shapes, moves, count, f"{passes[0].secret}/neighbours")
    return run_neighbours(job, shapes, host, on_step, request.until) if shapes else []


def how_many_neighbours(effort: Effort, taken: PassEvidence) -> int:
    """Return how many shapes beside the listed ones fit into their time, by what calls took in a pass; at least one."""
    calls = sum(len(shape.calls) for shape in taken.shapes)
    each = sum(shape.took_s for shape in taken.shapes) / max(calls, 1) * NEIGHBOUR_CALLS
    fitting = int(NEIGHBOUR_SECONDS / each) if effort.seconds and each else effort.neighbours
    return max(1, min(effort.neighbours, fitting))


def _needs_pass(passes: list[PassEvidence], job: Job) -> bool:
    """Tell whether another pass must run: the tier's own count, and a second one before any accusation."""
    if not passes:
        return True
    if len(passes) >= 2:
        return False
    last = passes[-1]
    if is_fault_of_memory(last) or has_integrity_lead(last, job.device):
        return True
    return len(passes) < job.effort.passes and last.ended == "complete" and not is_settled(last)


def _make_job(request: Request, form: Form) -> Job:
    problem = request.problem
    shapes = request.shapes or shapes_for(problem, request.device, form)
    effort = request.effort or shared(effort_of(request.tier, request.device), len(shapes))
    is_untimed = bool(problem.untimed(form))
    return Job(
        problem=problem.key,
        reference=request.reference,
        shapes=shapes,
        stress=[msgspec.structs.asdict(case) for case in problem.check.stress],
        tolerance=problem.check.tolerance,
        bundle=request.bundle,
        device=request.device,
        effort=replace(effort, as_deck=0) if is_untimed else effort,
        flush_bytes=0 if request.device == "cpu" else problem.timing.flush_bytes,
        deadlines=request.deadlines,
        limits=_limits(request),
        shows_reference="reference" not in problem.rules.forbidden_imports,
        floors_ms=() if is_untimed else _floors(request),
        gates=read_gates(request.reference.parent),
        adapter=request.reference.with_name(ADAPTER) if form == "entry" else None,
        has_census=effort.has_census or bool(problem.rules.forbidden_calls),
        least_bytes=tuple(unavoidable_bytes(problem, shape) for shape in shapes) if effort.has_census else (),
    )


def _floors(request: Request) -> tuple[float | None, ...]:
    """Return the physical floor of each of the problem's own shapes on the request's GPU; nothing on a processor."""
    if request.device == "cpu" or request.gpu is None or request.shapes is not None:
        return ()
    stick = yardstick(request.problem, request.gpu.key, request.gpu.current)
    return tuple(shape.floor_ms for shape in stick.shapes)


def _limits(request: Request) -> Limits:
    return limits_on(request.device) if request.limits == LIMITS else request.limits


def _varied(job: Job, number: int) -> Job:
    """Return the job of a pass: another number of addresses, so that nothing is tuned to one; a census in the last.

    The first census of a process starts the profiler, which takes seconds.
    """
    effort = replace(job.effort, slots=job.effort.slots + number)
    return replace(job, effort=effort, has_census=job.has_census and number + 1 >= effort.passes)
