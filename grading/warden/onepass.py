"""One pass: a fresh oracle, a fresh worker, all shapes, every call in the order of the plan.

Whatever happens, `run_pass` returns evidence and leaves no process behind.
"""

import contextlib
import os
import random
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Any, TypeVar

from grading.evidence import Call, PassEvidence, ShapeEvidence
from grading.problem import Shape
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import Effort, Step, plan_calls
from grading.warden.process import LIMITS, ROOT, Child, Limits, OutputTooLong, Program
from grading.worker.doorbell import DONE, GO, SNAPPED, Doorbell
from grading.worker.protocol import ProtocolError

_Heard = TypeVar("_Heard")
_ORACLE_ANSWERS = {
    "open": "opened",
    "commit": "committed",
    "shape": "shaped",
    "weights": "weighed",
    "prepare": "prepared",
    "reveal": "revealed",
}
_GRADING = ROOT / "grading"


@dataclass(frozen=True)
class Deadlines:
    """Seconds that each step may take, on the warden's monotonic clock."""

    start: float = 120.0
    build: float = 300.0
    step: float = 120.0
    call: float = 30.0
    end: float = 20.0


DEADLINES = Deadlines()


@dataclass(frozen=True)
class Job:
    """What both passes of a grade have in common."""

    problem: str
    reference: Path
    shapes: list[Shape]
    stress: list[dict[str, Any]]
    tolerance: Mapping[str, float]
    bundle: Mapping[str, bytes]
    device: str
    effort: Effort
    flush_bytes: int = 0
    deadlines: Deadlines = DEADLINES
    limits: Limits = LIMITS
    shows_reference: bool = True
    has_census: bool = False


class Stopped(Exception):
    """The pass cannot go on: how it ended, and why."""

    def __init__(self, ended: str, detail: str) -> None:
        super().__init__(detail)
        self.ended = ended
        self.detail = detail


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
    _arguments: list[list[Any]] = field(default_factory=list)

    def run(self) -> PassEvidence:
        """Go through all steps; return what was seen. Never raises for what the candidate does."""
        ended, detail, died_of = "complete", "", None
        try:
            self._run_steps()
        except Stopped as error:
            ended, detail = error.ended, error.detail
            died_of = self._exit_signal()
        finally:
            written = self._close()
            self.host.is_dirty = self.at != "end"
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
        )

    def _run_steps(self) -> None:
        if self.host.is_dirty or not self.host.is_alive:
            self.host.restart()
        self._step("start")
        self._start()
        self._step("build")
        built = self._tell_worker({"do": "import"}, self.job.deadlines.build)
        self.changed_at_import = [str(line)[:200] for line in built.get("changed", [])][:40]
        for arguments in self._arguments:
            self._tell_worker({"do": "model", "arguments": arguments}, self.job.deadlines.build)
        self._step("commit")
        committed = self._ask_oracle({"do": "commit"})
        self.commitment, self.plan_seed = committed["commitment"], committed["plan_seed"]
        for index in range(len(self.job.shapes)):
            self._run_shape(index)
        self._step("close")
        report = self._tell_worker({"do": "identity"}, self.job.deadlines.step)
        self.changed_at_end = [str(line)[:200] for line in report.get("changed", [])][:40]
        self._part_from_worker()
        self.secret = self._ask_oracle({"do": "reveal"})["secret"]
        self.at = "end"

    def _start(self) -> None:
        job, host = self.job, self.host
        slot = os.getpid() % 2000
        shown = [_GRADING / "__init__.py", _GRADING / "worker"]
        folder = f"/job-{secrets.token_hex(4)}"
        arguments = (host.page, job.device, host.pause_seconds)
        program = Program(
            "worker",
            "grading.worker.main",
            arguments,
            61000 + slot,
            shown,
            folder,
            self._bundle(),
            limits=job.limits,
            device=job.device,
        )
        self.worker = Child(program, [host.page])
        deadline = monotonic() + job.deadlines.start
        self._guard(host.child, lambda: host.greet(job.deadlines.start))
        opened = {
            "do": "open",
            "problem": job.problem,
            "reference": str(job.reference),
            "shapes": job.shapes,
            "stress": job.stress,
            "tolerance": job.tolerance,
        }
        self._arguments = self._ask_oracle(opened)["arguments"]
        for name in ("hello", "loaded_runtime"):
            self._expect(self._hear(self.worker, deadline), name)
        self.isolation = {child.name: child.read_report() for child in (host.child, self.worker)}

    def _bundle(self) -> dict[str, bytes]:
        """Return the bundle's files beside the problem's public ones, which submissions may import."""
        own = {"shapes.py": f"SHAPES = {self.job.shapes!r}\n".encode()}
        if self.job.shows_reference:
            own["reference.py"] = self.job.reference.read_bytes()
        return {**own, **self.job.bundle}

    def _run_shape(self, index: int) -> None:
        self._step(f"shape {index}")
        job, oracle = self.job, self.host.child
        self.calls = []
        slots = job.effort.slots
        shaped = self._ask_oracle(
            {"do": "shape", "index": index, "slots": slots, "writable_inputs": self.writable_inputs}
        )
        descriptors = oracle.channel.take_descriptors()
        self._expect(self._hear(oracle, monotonic() + job.deadlines.step), "sent")
        try:
            self._tell_worker({"do": "model", "arguments": self._arguments[index]}, job.deadlines.build)
            arenas = {name: shaped[name] for name in ("inputs", "outputs", "states")}
            message = {"do": "arenas", "slots": slots, **arenas}
            self._tell_worker(message, job.deadlines.step, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        noops: list[tuple[int, int]] = []
        rng = random.Random(f"{self.plan_seed}/{index}")
        try:
            for position, step in enumerate(plan_calls(job.effort, shaped["cases"], rng)):
                if step.kind == "weights":
                    self._load_weights()
                    continue
                self._step(f"shape {index} call", is_quiet=True)
                self._make_call(step)
                if position % 8 == 0 or not noops:
                    noops += [self._make_noop() for _ in range(max(1, job.effort.noops // 10))]
            census = self._take_census(index)
        finally:
            self.shapes.append(
                ShapeEvidence(
                    shape={name: float(value) for name, value in job.shapes[index].items()},
                    noop_done_ns=[done for done, _ in noops],
                    noop_snap_ns=[snap for _, snap in noops],
                    calls=self.calls,
                    census=census if "census" in locals() else [],
                )
            )

    def _load_weights(self) -> None:
        self.host.count += 1
        self._ask_oracle({"do": "weights", "number": self.host.count})
        self._tell_worker({"do": "state"}, self.job.deadlines.step)

    def _make_call(self, step: Step) -> None:
        self.host.count += 1
        number = self.host.count
        prepared = self._ask_oracle(
            {
                "do": "prepare",
                "number": number,
                "slot": step.slot,
                "kind": step.kind,
                "name": step.name,
                "index": number,
                "keep": step.keep,
                "flush_bytes": self.job.flush_bytes,
            }
        )
        if prepared["poke"]:
            self._tell_worker({"do": "poke", "names": prepared["poke"]}, self.job.deadlines.step)
        done_ns, snap_ns, judged, called = self._ring(number, step, int(prepared["poison"]), is_noop=False)
        fault = called.get("fault")
        fault = fault if isinstance(fault, dict) else None
        claim = called.get("claim_ns")
        self.calls.append(
            Call(
                number=number,
                group=step.group,
                kind=step.kind,
                name=step.name,
                slot=step.slot,
                done_ns=done_ns,
                snap_ns=snap_ns,
                claim_ns=claim if isinstance(claim, int) and 0 <= claim < 1 << 62 else 0,
                ratio=judged["ratio"],
                bad=judged["bad"],
                form=judged["form"],
                hash=judged["hash"],
                inputs_intact=judged["inputs_intact"],
                poison_left=judged["poison_left"],
                is_within_deck=judged["is_within_deck"],
                class_ratio=judged["class_ratio"],
                moved=prepared["moved"],
                fault=str(fault.get("kind"))[:20] if fault else None,
                fault_text=str(fault.get("text"))[:500] if fault else None,
            )
        )
        if fault and "CUDA error" in str(fault.get("text")):
            raise Stopped("device", str(fault.get("text")))

    def _make_noop(self) -> tuple[int, int]:
        self.host.count += 1
        done_ns, snap_ns, _, _ = self._ring(self.host.count, Step("noop", "noop"), 0, is_noop=True)
        return done_ns, snap_ns

    def _ring(
        self, number: int, step: Step, poison: int, *, is_noop: bool
    ) -> tuple[int, int, dict[str, Any], dict[str, Any]]:
        """Start one call and wait for the answer and for the oracle's copy of it; the clock is this process's own."""
        oracle, worker, seconds = self.host.child, self.worker, self.job.deadlines.call
        assert worker is not None
        bell, own_bell = self.host.bell, self.host.own_bell
        order = {
            "do": "call",
            "number": number,
            "slot": step.slot,
            "bump": step.bump and not is_noop,
            "renew": step.renew,
            "noop": is_noop,
            "poison": poison,
            "seconds": seconds,
        }
        armed = self._tell_worker(order, self.job.deadlines.step)
        self._expect(armed, "armed")
        oracle.channel.send({"do": "judge", "number": number, "slot": step.slot, "noop": is_noop, "seconds": seconds})
        start_ns = perf_counter_ns()
        bell.ring(GO, number)
        deadline = monotonic() + seconds
        done_ns = self._await(bell, DONE, number, deadline) - start_ns
        snap_ns = self._await(own_bell, SNAPPED, number, deadline) - start_ns
        called = self._hear(worker, deadline + 1)
        self._expect(called, "called")
        judged = self._hear(oracle, monotonic() + self.job.deadlines.step)
        self._expect(judged, "judged")
        return done_ns, snap_ns, judged, called

    def _await(self, bell: Doorbell, cell: int, number: int, deadline: float) -> int:
        """Wait for a counter; look for a dead worker every quarter of a second."""
        while True:
            try:
                bell.wait(cell, number, min(deadline, monotonic() + 0.25))
                return perf_counter_ns()
            except TimeoutError as error:
                for child in (self.worker, self.host.child):
                    if child is not None and child.exit_code(0) is not None:
                        self._hear(child, monotonic())
                if monotonic() > deadline:
                    raise Stopped("timeout", f"{self.at}: the doorbell was not answered in time") from error

    def _take_census(self, index: int) -> list[dict[str, Any]]:
        if not self.job.has_census:
            return []
        self._step(f"shape {index} census")
        rows = self._tell_worker({"do": "census", "slot": 0}, self.job.deadlines.step).get("rows", [])
        return [row for row in map(_census_row, rows if isinstance(rows, list) else []) if row][:60]

    def _part_from_worker(self) -> None:
        """Say goodbye; anything that still comes after it was not asked for."""
        worker = self.worker
        assert worker is not None
        with contextlib.suppress(OSError):
            worker.channel.send({"do": "bye"})
        deadline = monotonic() + self.job.deadlines.end
        try:
            message = worker.receive(deadline)
        except EOFError:
            return
        except TimeoutError:
            return
        except ProtocolError as error:
            raise Stopped("protocol", f"after the end: {error}") from error
        raise Stopped("protocol", f"after the end came {str(message)[:200]}")

    def _tell_worker(
        self, message: dict[str, Any], seconds: float, descriptors: list[int] | None = None
    ) -> dict[str, Any]:
        worker = self.worker
        assert worker is not None
        try:
            worker.channel.send(message, descriptors or ())
        except OSError:
            pass
        answer = self._hear(worker, monotonic() + seconds)
        if answer.get("event") == "error":
            raise Stopped("build", f"{message['do']}: {str(answer.get('text'))[:1500]}")
        return answer

    def _ask_oracle(self, message: dict[str, Any]) -> dict[str, Any]:
        oracle = self.host.child
        with contextlib.suppress(OSError):
            oracle.channel.send(message)
        answer = self._hear(oracle, monotonic() + self.job.deadlines.step)
        if answer.get("event") != _ORACLE_ANSWERS[message["do"]]:
            raise Stopped("oracle", f"{message['do']}: answered {str(answer)[:200]}")
        return answer

    def _hear(self, child: Child, deadline: float) -> dict[str, Any]:
        message = self._guard(child, lambda: child.receive(deadline))
        if child is not self.worker and message.get("event") == "error":
            raise Stopped("oracle", str(message.get("text"))[:1500])
        return message

    def _guard(self, child: Child, receive: Callable[[], _Heard]) -> _Heard:
        """Receive, and turn every way in which that can fail into the pass's end."""
        is_worker = child is self.worker
        try:
            return receive()
        except ProtocolError as error:
            raise Stopped("protocol" if is_worker else "oracle", str(error)) from error
        except OutputTooLong as error:
            raise Stopped("output", str(error)) from error
        except TimeoutError as error:
            raise Stopped("timeout" if is_worker else "oracle", f"{child.name} said nothing in time") from error
        except EOFError as error:
            code = child.exit_code(5)
            tail = bytes(child.output[-600:]).decode("utf-8", "replace")
            raise Stopped(
                "died" if is_worker else "oracle", f"{child.name} ended with status {code}: {tail}"
            ) from error

    def _expect(self, message: dict[str, Any], event: str) -> None:
        if message.get("event") == "error":
            raise Stopped("build", str(message.get("text"))[:1500])
        if message.get("event") != event:
            raise Stopped("protocol", f"expected {event!r}; got {str(message)[:200]}")

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
    return evidence.ended == "died" and evidence.signal in (signal.SIGSEGV, signal.SIGBUS)


def _census_row(row: Any) -> dict[str, Any] | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    share = row.get("share")
    kind = "kernel" if row.get("kind") == "kernel" else "op"
    return {"name": row["name"][:120], "kind": kind, "share": float(share) if isinstance(share, float | int) else 0.0}
