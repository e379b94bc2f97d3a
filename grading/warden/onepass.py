"""One pass: a worker of its own, all shapes, every call in the order of the plan.

Whatever happens, `Pass.run` returns evidence and leaves no process of the candidate behind.
"""

import os
import random
import secrets
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import msgspec

from grading.card import name_inside
from grading.evidence import Call, CodeLook, DeviceSample, PassEvidence, ShapeEvidence, Traffic
from grading.verdict import is_never_right, is_plainly_wrong
from grading.warden.claims import as_lines, census_rows, record_call
from grading.warden.cores import keep_to
from grading.warden.gpustate import Sampler
from grading.warden.hold import LEAST_US, hold_us, usual
from grading.warden.job import Job
from grading.warden.mappedcode import CodeWatch
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import Cost, Effort, Step, fit, once_wrong, plan_battery, plan_warmup
from grading.warden.process import ROOT, Child, Program
from grading.warden.talk import Rung, Stopped, Talk
from grading.warden.traffic import Meter, is_counted, measure_traffic

_GRADING = ROOT / "grading"
_FIRST_UID, _UIDS = 61000, 2000
_SAMPLED_ONE_IN = 16
# Of the time that a shape may take, the warm-up gets so much of the oracle, but three calls at the least.
_WARMUP_SHARE, _LEAST_WARMUP = 1 / 6, 3


@dataclass
class Pass:
    """A pass in progress; `on_step` is told each step's name before it begins."""

    job: Job
    number: int
    host: OracleHost
    on_step: Callable[[str, "Pass"], None]
    writable_inputs: bool = False
    at: str = "start"
    steps: list[str] = field(default_factory=list)
    worker: Child | None = None
    isolation: dict[str, dict[str, object]] = field(default_factory=dict)
    shapes: list[ShapeEvidence] = field(default_factory=list)
    changed_at_import: list[str] = field(default_factory=list)
    changed_at_end: list[str] = field(default_factory=list)
    commitment: str | None = None
    plan_seed: int | None = None
    secret: str | None = None
    calls: list[Call] = field(default_factory=list)
    output: bytes = b""
    versions: dict[str, str] = field(default_factory=dict)
    calibration: list[float | None] = field(default_factory=list)
    samples: list[DeviceSample] = field(default_factory=list)
    looks: list[CodeLook] = field(default_factory=list)
    step_seconds: dict[str, float] = field(default_factory=dict)
    _arguments: list[list[Any]] = field(default_factory=list)
    _noops: list[list[Rung]] = field(default_factory=list)
    _hold_us: int = LEAST_US
    _has_state: bool = False
    _costs: list[Cost] = field(default_factory=list)
    _talk: Talk | None = None
    _sampler: Sampler | None = None
    _watch: CodeWatch | None = None
    _step_began: float = field(default_factory=monotonic)

    def run(self) -> PassEvidence:
        """Go through all steps; return what was seen. Never raises for what the candidate does."""
        ended, detail, died_of = "complete", "", None
        self._sampler = Sampler(self.job.device)
        self._sample()
        try:
            self._run_steps()
        except Stopped as error:
            ended, detail = error.ended, error.detail
            died_of = self._exit_signal()
        finally:
            written = self._close()
            self._end_step()
        return PassEvidence(
            number=self.number,
            ended=ended,
            at=self.at,
            detail=detail[:2000],
            signal=died_of,
            commitment=self.commitment,
            secret=self.secret,
            plan_seed=self.plan_seed,
            changed_at_import=self.changed_at_import,
            changed_at_end=self.changed_at_end,
            isolation=self.isolation,
            output_bytes=written,
            shapes=self.shapes,
            steps=self.steps,
            writable_inputs=self.writable_inputs,
            samples=self.samples,
            step_seconds=self.step_seconds,
            mapped_code=self.looks,
            calibration_before_ms=next(iter(self.calibration), None),
            calibration_after_ms=self.calibration[1] if len(self.calibration) > 1 else None,
        )

    def _run_steps(self) -> None:
        if self.host.is_dirty or not self.host.is_alive:
            self.host.restart()
        self._step("start")
        talk = self._start()
        with keep_to(self.host.cores.warden):
            self._run_with(talk)

    def _run_with(self, talk: Talk) -> None:
        job = self.job
        self._step("rehearse")
        self._rehearse(talk)
        self._look()
        self._step("build")
        built = talk.tell_worker({"do": "import", "adapter": str(job.adapter or "")}, job.deadlines.build)
        self.changed_at_import = as_lines(built.get("changed"))
        self._build_models(talk)
        self._look()
        self._step("commit")
        committed = talk.ask_oracle({"do": "commit"})
        self.commitment, self.plan_seed = committed["commitment"], committed["plan_seed"]
        for index in range(len(job.shapes)):
            self._run_shape(talk, index)
        self._look()
        self._step("close")
        self.changed_at_end = as_lines(talk.tell_worker({"do": "identity"}, job.deadlines.step).get("changed"))
        talk.part()
        self.calibration.append(talk.ask_oracle({"do": "calibrate"})["ms"])
        self.secret = talk.ask_oracle({"do": "reveal"})["secret"]
        self.at = "end"

    def _build_models(self, talk: Talk) -> None:
        for arguments in self._arguments:
            talk.tell_worker({"do": "model", "arguments": arguments}, self.job.deadlines.build)

    def _start(self) -> Talk:
        """Start the worker, in a folder with a name of its own; open the problem in the oracle."""
        job, host = self.job, self.host
        self.worker = Child(
            Program(
                name="worker",
                entry="grading.worker.main",
                arguments=(host.page, name_inside(job.device), host.pause_seconds),
                uid=_FIRST_UID + os.getpid() % _UIDS,
                shown=[_GRADING / "__init__.py", _GRADING / "worker", *([job.adapter] if job.adapter else [])],
                bundle_at=f"/job-{secrets.token_hex(4)}",
                bundle=self._bundle(),
                limits=job.limits,
                device=job.device,
                cores=host.cores.worker,
            ),
            [host.page],
        )
        self._watch = CodeWatch(self.worker.pid, self.worker.binds)
        self._talk = talk = Talk(self.worker, host, job.deadlines)
        self.versions = talk.greet()
        self.isolation = {child.name: child.read_report() for child in (host.child, self.worker)}
        opened = talk.ask_oracle(
            {
                "do": "open",
                "problem": job.problem,
                "reference": str(job.reference),
                "is_entry": job.adapter is not None,
                "shapes": job.shapes,
                "stress": job.stress,
                "tolerance": job.tolerance,
                "gates": msgspec.to_builtins(job.gates),
            }
        )
        self._arguments = opened["arguments"]
        return talk

    def _bundle(self) -> dict[str, bytes]:
        """Return the bundle's files beside the problem's public ones, which submissions may import."""
        own = {"shapes.py": f"SHAPES = {list(self.job.listed) or self.job.shapes!r}\n".encode()}
        if self.job.shows_reference:
            own["reference.py"] = self.job.reference.read_bytes()
        return {**own, **self.job.bundle}

    def _rehearse(self, talk: Talk) -> None:
        """Time calls that do nothing before the bundle is imported, so that it cannot slow them down.

        The secret of the rehearsal is thrown away; the oracle draws another one after the import.
        """
        self.calibration.append(talk.ask_oracle({"do": "calibrate"})["ms"])
        talk.ask_oracle({"do": "commit"})
        for index in range(len(self.job.shapes)):
            self._map_shape(talk, index)
            self._noops.append([self._ring_noop(talk) for _ in range(self.job.effort.noops)])

    def _ring_noop(self, talk: Talk) -> Rung:
        """Time a call that does nothing, after the same flush as any other call: a warm cache would flatter it."""
        talk.ask_oracle({"do": "idle"})
        return talk.ring(self._order(self._next(), Step("noop", "noop"), 0, is_noop=True))

    def _map_shape(self, talk: Talk, index: int) -> dict[str, list[str]]:
        """Make the arenas of a shape in the oracle and map them in the worker; return the names of its cases."""
        slots, oracle = self.job.effort.slots, self.host.child
        order = {"do": "shape", "index": index, "slots": slots, "writable_inputs": self.writable_inputs}
        shaped = talk.ask_oracle(order)
        descriptors = oracle.channel.take_descriptors()
        try:
            talk.expect(talk.hear(oracle, monotonic() + self.job.deadlines.step), "sent")
            arenas = {name: shaped[name] for name in ("inputs", "outputs", "states")}
            self._has_state = any(spec["writable"] for spec in shaped["inputs"])
            message = {"do": "arenas", "slots": slots, **arenas}
            talk.expect(talk.tell_worker(message, self.job.deadlines.step, descriptors), "mapped")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        cases: dict[str, list[str]] = shaped["cases"]
        return cases

    def _run_shape(self, talk: Talk, index: int) -> None:
        self._step(f"shape {index}")
        job = self.job
        effort = once_wrong(job.effort) if is_plainly_wrong(self.shapes) else job.effort
        self.calls, self._hold_us = [], LEAST_US
        census: list[dict[str, Any]] = []
        traffic: Traffic | None = None
        cases, began = self._map_shape(talk, index), monotonic()
        talk.tell_worker({"do": "model", "arguments": self._arguments[index]}, job.deadlines.build)
        try:
            rng = random.Random(f"{self.plan_seed}/{index}")
            self._warm_up(talk, index, effort, rng)
            steps = list(plan_battery(fit(effort, self._cost(), cases), cases, rng))
            looked = rng.randrange(len(steps))
            for place, step in enumerate(steps):
                if is_never_right(self.calls):
                    break
                self._take_step(talk, step, index)
                if place == looked:
                    self._look()
            else:
                census = self._take_census(talk, index)
                traffic = self._count_traffic(talk, index)
        finally:
            noops = self._noops[index]
            self.shapes.append(
                ShapeEvidence(
                    shape={name: float(value) for name, value in job.shapes[index].items()},
                    noop_done_ns=[noop.done_ns for noop in noops],
                    noop_snap_ns=[noop.snap_ns for noop in noops],
                    noop_held_ns=[noop.held_ns for noop in noops],
                    calls=self.calls,
                    floor_ms=job.floors_ms[index] if index < len(job.floors_ms) else None,
                    census=census,
                    traffic=traffic,
                    began_s=round(began - job.started, 3),
                    took_s=round(monotonic() - began, 3),
                )
            )

    def _warm_up(self, talk: Talk, index: int, effort: Effort, rng: random.Random) -> None:
        """Make the first calls; what they took decides the hold, and how many calls fit."""
        self._costs = []
        most = effort.seconds * _WARMUP_SHARE
        for step in plan_warmup(effort, rng):
            self._take_step(talk, step, index)
            if most and len(self._costs) >= _LEAST_WARMUP and sum(cost.oracle for cost in self._costs) > most:
                break
        self._hold_us = hold_us(self.calls, [noop.done_ns - noop.held_ns for noop in self._noops[index]])

    def _cost(self) -> Cost:
        """Return the usual cost of a warm-up call."""
        return Cost(usual([cost.oracle for cost in self._costs]), usual([cost.call for cost in self._costs]))

    def _take_step(self, talk: Talk, step: Step, index: int) -> None:
        if step.kind == "weights":
            self._load_weights(talk)
            return
        self._step(f"shape {index} call", is_quiet=True)
        self._make_call(talk, step)

    def _load_weights(self, talk: Talk) -> None:
        talk.ask_oracle({"do": "weights", "number": self._next()})
        talk.tell_worker({"do": "state"}, self.job.deadlines.step)

    def _make_call(self, talk: Talk, step: Step) -> None:
        number = self._next()
        content = {"slot": step.slot, "kind": step.kind, "name": step.name, "index": number, "keep": step.keep}
        began = monotonic()
        prepared = talk.ask_oracle({"do": "prepare", "number": number} | content)
        ready = monotonic()
        if prepared["poke"]:
            talk.tell_worker({"do": "poke", "names": prepared["poke"]}, self.job.deadlines.step)
        order = self._order(number, step, int(prepared["poison"]), is_noop=False)
        rung = talk.ring(order, is_first=not self.calls)
        judging = rung.judge_ns / 1e9
        self._costs.append(Cost(ready - began + judging, monotonic() - ready - judging))
        if number % _SAMPLED_ONE_IN == 0:
            self._sample()
        call = record_call(number, step, rung, prepared["moved"])
        self.calls.append(call)
        if call.fault_text is not None and "CUDA error" in call.fault_text:
            raise Stopped("device", call.fault_text)

    def _look(self) -> None:
        """Compare the worker's code with its files, without a word to the worker; never while a clock runs."""
        if self._watch is not None:
            self.looks.append(self._watch.look(self.at))

    def _sample(self) -> None:
        sample = self._sampler and self._sampler.sample(self.worker.pid if self.worker else 0, self.host.child.pid)
        if sample:
            self.samples.append(sample)

    def _take_census(self, talk: Talk, index: int) -> list[dict[str, Any]]:
        if not self.job.has_census:
            return []
        self._step(f"shape {index} census")
        rows = talk.tell_worker({"do": "census", "slot": 0}, self.job.deadlines.step).get("rows", [])
        return census_rows(rows)

    def _count_traffic(self, talk: Talk, index: int) -> Traffic | None:
        """Count what calls in a row move, on inputs that they leave as they are."""
        job, noops = self.job, self._noops[index]
        is_asked_for = job.has_census and job.least_bytes and is_counted(index, len(job.shapes))
        if not (is_asked_for and noops and self.calls):
            return None
        self._step(f"shape {index} traffic")
        idle_ns = statistics.median(noop.done_ns - noop.held_ns for noop in noops)
        call_s = max(usual([call.done_ns - call.held_ns for call in self.calls]) - idle_ns, 5000.0) / 1e9
        order = {"do": "repeat", "slot": 0, "flush_bytes": job.flush_bytes}

        def repeat(count: int, is_noop: bool) -> None:
            done = talk.tell_worker({**order, "count": count, "noop": is_noop}, job.deadlines.step)
            if "error" in done:
                raise LookupError(f"a call in a row failed: {done['error']}")

        meter = Meter(job.device, "calls change their inputs" if self._has_state else "")
        return measure_traffic(meter, repeat, call_s, job.flush_bytes, job.least_bytes[index])

    def _order(self, number: int, step: Step, poison: int, *, is_noop: bool) -> dict[str, Any]:
        return {
            "number": number,
            "slot": step.slot,
            "bump": step.bump and not is_noop,
            "renew": step.renew,
            "noop": is_noop,
            "as_deck": step.as_deck,
            "hold_us": self._hold_us if step.is_held else 0,
            "poison": poison,
            "flush_bytes": self.job.flush_bytes,
        }

    def _next(self) -> int:
        self.host.count += 1
        return self.host.count

    def _step(self, name: str, *, is_quiet: bool = False) -> None:
        self.at = name
        if not is_quiet:
            self._end_step()
            self.steps.append(name)
        self.on_step(name, self)

    def _end_step(self) -> None:
        """Note how long the last step took."""
        now = monotonic()
        if self.steps:
            self.step_seconds[self.steps[-1]] = round(now - self._step_began, 3)
        self._step_began = now

    def _exit_signal(self) -> int | None:
        code = self.worker.exit_code(1) if self.worker else None
        return code - 128 if code is not None and code > 128 else None

    def _close(self) -> int:
        if self.worker is None:
            return 0
        self.worker.close()
        self.output = bytes(self.worker.output)
        return self.worker.output_bytes
