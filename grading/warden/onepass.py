"""One pass: a worker of its own, all shapes, every call in the order of the plan.

Whatever happens, `Pass.run` returns evidence and leaves no process of the candidate behind.
"""

import os
import random
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from grading.evidence import Call, DeviceSample, PassEvidence, ShapeEvidence
from grading.problem import Shape
from grading.warden.cores import keep_to
from grading.warden.gpustate import Sampler
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import Effort, Step, plan_calls
from grading.warden.process import LIMITS, ROOT, Child, Limits, Program
from grading.warden.talk import Deadlines, Rung, Stopped, Talk

DEADLINES = Deadlines()
_GRADING = ROOT / "grading"
_FIRST_UID, _UIDS = 61000, 2000
_LARGEST_CLAIM_NS = 1 << 62
_SAMPLED_ONE_IN = 16


@dataclass(frozen=True)
class Job:
    """What all passes of a grade have in common."""

    problem: str
    reference: Path
    shapes: list[Shape]
    stress: list[dict[str, Any]]
    tolerance: Mapping[str, float]
    bundle: Mapping[str, bytes]
    device: str
    effort: Effort
    flush_bytes: int = 0
    floors_ms: tuple[float | None, ...] = ()
    deadlines: Deadlines = DEADLINES
    limits: Limits = LIMITS
    shows_reference: bool = True
    has_census: bool = False
    started: float = field(default_factory=monotonic)


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
    _arguments: list[list[Any]] = field(default_factory=list)
    _noops: list[list[Rung]] = field(default_factory=list)
    _talk: Talk | None = None
    _sampler: Sampler | None = None

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
        self._step("build")
        built = talk.tell_worker({"do": "import"}, job.deadlines.build)
        self.changed_at_import = _lines(built.get("changed"))
        for arguments in self._arguments:
            talk.tell_worker({"do": "model", "arguments": arguments}, job.deadlines.build)
        self._step("commit")
        committed = talk.ask_oracle({"do": "commit"})
        self.commitment, self.plan_seed = committed["commitment"], committed["plan_seed"]
        for index in range(len(job.shapes)):
            self._run_shape(talk, index)
        self._step("close")
        self.changed_at_end = _lines(talk.tell_worker({"do": "identity"}, job.deadlines.step).get("changed"))
        talk.part()
        self.calibration.append(talk.ask_oracle({"do": "calibrate"})["ms"])
        self.secret = talk.ask_oracle({"do": "reveal"})["secret"]
        self.at = "end"

    def _start(self) -> Talk:
        """Start the worker, in a folder with a name of its own; open the problem in the oracle."""
        job, host = self.job, self.host
        self.worker = Child(
            Program(
                name="worker",
                entry="grading.worker.main",
                arguments=(host.page, job.device, host.pause_seconds),
                uid=_FIRST_UID + os.getpid() % _UIDS,
                shown=[_GRADING / "__init__.py", _GRADING / "worker"],
                bundle_at=f"/job-{secrets.token_hex(4)}",
                bundle=self._bundle(),
                limits=job.limits,
                device=job.device,
                cores=host.cores.worker,
            ),
            [host.page],
        )
        self._talk = talk = Talk(self.worker, host, job.deadlines)
        self.versions = talk.greet()
        self.isolation = {child.name: child.read_report() for child in (host.child, self.worker)}
        opened = talk.ask_oracle(
            {
                "do": "open",
                "problem": job.problem,
                "reference": str(job.reference),
                "shapes": job.shapes,
                "stress": job.stress,
                "tolerance": job.tolerance,
            }
        )
        self._arguments = opened["arguments"]
        return talk

    def _bundle(self) -> dict[str, bytes]:
        """Return the bundle's files beside the problem's public ones, which submissions may import."""
        own = {"shapes.py": f"SHAPES = {self.job.shapes!r}\n".encode()}
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
        self.calls = []
        census: list[dict[str, Any]] = []
        cases, began = self._map_shape(talk, index), monotonic()
        talk.tell_worker({"do": "model", "arguments": self._arguments[index]}, job.deadlines.build)
        try:
            for step in plan_calls(job.effort, cases, random.Random(f"{self.plan_seed}/{index}")):
                if step.kind == "weights":
                    self._load_weights(talk)
                    continue
                self._step(f"shape {index} call", is_quiet=True)
                self._make_call(talk, step)
            census = self._take_census(talk, index)
        finally:
            noops = self._noops[index]
            self.shapes.append(
                ShapeEvidence(
                    shape={name: float(value) for name, value in job.shapes[index].items()},
                    noop_done_ns=[noop.done_ns for noop in noops],
                    noop_snap_ns=[noop.snap_ns for noop in noops],
                    calls=self.calls,
                    floor_ms=job.floors_ms[index] if index < len(job.floors_ms) else None,
                    census=census,
                    began_s=round(began - job.started, 3),
                    took_s=round(monotonic() - began, 3),
                )
            )

    def _load_weights(self, talk: Talk) -> None:
        talk.ask_oracle({"do": "weights", "number": self._next()})
        talk.tell_worker({"do": "state"}, self.job.deadlines.step)

    def _make_call(self, talk: Talk, step: Step) -> None:
        number = self._next()
        content = {"slot": step.slot, "kind": step.kind, "name": step.name, "index": number, "keep": step.keep}
        prepared = talk.ask_oracle({"do": "prepare", "number": number} | content)
        if prepared["poke"]:
            talk.tell_worker({"do": "poke", "names": prepared["poke"]}, self.job.deadlines.step)
        rung = talk.ring(self._order(number, step, int(prepared["poison"]), is_noop=False))
        if number % _SAMPLED_ONE_IN == 0:
            self._sample()
        call = _make_record(number, step, rung, prepared["moved"])
        self.calls.append(call)
        if call.fault_text is not None and "CUDA error" in call.fault_text:
            raise Stopped("device", call.fault_text)

    def _sample(self) -> None:
        sample = self._sampler and self._sampler.sample(self.worker.pid if self.worker else 0, self.host.child.pid)
        if sample:
            self.samples.append(sample)

    def _take_census(self, talk: Talk, index: int) -> list[dict[str, Any]]:
        if not self.job.has_census:
            return []
        self._step(f"shape {index} census")
        rows = talk.tell_worker({"do": "census", "slot": 0}, self.job.deadlines.step).get("rows", [])
        return [row for row in map(_census_row, rows if isinstance(rows, list) else []) if row][:60]

    def _order(self, number: int, step: Step, poison: int, *, is_noop: bool) -> dict[str, Any]:
        return {
            "number": number,
            "slot": step.slot,
            "bump": step.bump and not is_noop,
            "renew": step.renew,
            "noop": is_noop,
            "held": not step.as_deck,
            "poison": poison,
            "flush_bytes": self.job.flush_bytes,
        }

    def _next(self) -> int:
        self.host.count += 1
        return self.host.count

    def _step(self, name: str, *, is_quiet: bool = False) -> None:
        self.at = name
        if not is_quiet:
            self.steps.append(name)
        self.on_step(name, self)

    def _exit_signal(self) -> int | None:
        code = self.worker.exit_code(1) if self.worker else None
        return code - 128 if code is not None and code > 128 else None

    def _close(self) -> int:
        if self.worker is None:
            return 0
        self.worker.close()
        self.output = bytes(self.worker.output)
        return self.worker.output_bytes


def is_fault_of_memory(evidence: PassEvidence) -> bool:
    """Tell whether the worker ended as one does that writes to memory which it may only read."""
    if evidence.ended == "device":
        return True
    return evidence.ended == "died" and evidence.signal in (signal.SIGSEGV, signal.SIGBUS)


def _make_record(number: int, step: Step, rung: Rung, moved: float | None) -> Call:
    """Return the record of a call: the oracle's findings as they are, the worker's claims only within bounds."""
    judged, fault, claim = rung.judged, rung.called.get("fault"), rung.called.get("claim_ns")
    fault = fault if isinstance(fault, dict) else None
    return Call(
        number=number,
        group=step.group,
        kind=step.kind,
        name=step.name,
        slot=step.slot,
        done_ns=rung.done_ns,
        snap_ns=rung.snap_ns,
        claim_ns=claim if isinstance(claim, int) and 0 <= claim < _LARGEST_CLAIM_NS else 0,
        ratio=judged["ratio"],
        bad=judged["bad"],
        form=judged["form"],
        hash=judged["hash"],
        inputs_intact=judged["inputs_intact"],
        poison_left=judged["poison_left"],
        is_within_deck=judged["is_within_deck"],
        class_ratio=judged["class_ratio"],
        moved=moved,
        fault=str(fault.get("kind"))[:20] if fault else None,
        fault_text=str(fault.get("text"))[:500] if fault else None,
    )


def _lines(value: Any) -> list[str]:
    return [str(line)[:200] for line in value][:40] if isinstance(value, list) else []


def _census_row(row: Any) -> dict[str, Any] | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    share = row.get("share")
    kind = "kernel" if row.get("kind") == "kernel" else "op"
    return {"name": row["name"][:120], "kind": kind, "share": float(share) if isinstance(share, float | int) else 0.0}
