"""The warden's side of both control sockets: every way in which a conversation can fail becomes the pass's end."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import Any, TypeVar

from grading.warden.oraclehost import OracleHost
from grading.warden.process import Child, OutputTooLong
from grading.worker.doorbell import DONE, GO, RELEASE, RELEASED, SNAPPED, Doorbell
from grading.worker.protocol import ProtocolError

_Heard = TypeVar("_Heard")
_ORACLE_ANSWERS = {
    "open": "opened",
    "commit": "committed",
    "shape": "shaped",
    "weights": "weighed",
    "prepare": "prepared",
    "idle": "idled",
    "reveal": "revealed",
    "calibrate": "calibrated",
}


@dataclass(frozen=True)
class Deadlines:
    """Seconds that each step may take, on the warden's monotonic clock.

    first  what a shape's first call may take instead of ``call``, where that is more: many build their kernels there
    """

    start: float = 120.0
    build: float = 300.0
    step: float = 120.0
    call: float = 30.0
    end: float = 20.0
    first: float = 0.0


class Stopped(Exception):
    """The pass cannot go on: how it ended, and why."""

    def __init__(self, ended: str, detail: str) -> None:
        super().__init__(detail)
        self.ended = ended
        self.detail = detail


@dataclass(frozen=True)
class Rung:
    """One call as the warden saw it: its own times, what the oracle found, and what the worker claims.

    judge_ns  how long the warden waited for the oracle alone
    """

    done_ns: int
    snap_ns: int
    judged: dict[str, Any]
    called: dict[str, Any]
    judge_ns: int = 0

    @property
    def held_ns(self) -> int:
        """For how long the oracle kept the device busy."""
        return int(self.judged["held_ns"])


@dataclass
class Talk:
    """A conversation with one worker and the oracle."""

    worker: Child
    host: OracleHost
    deadlines: Deadlines

    def greet(self) -> dict[str, str]:
        """Wait until both processes are up; return the versions of what they run on, said before any bundle."""
        deadline = monotonic() + self.deadlines.start
        self._guard(self.host.child, lambda: self.host.greet(self.deadlines.start))
        for name in ("hello", "loaded_runtime"):
            message = self.hear(self.worker, deadline)
            self.expect(message, name)
        return {name: str(message.get(name))[:40] for name in ("torch", "cuda", "triton") if message.get(name)}

    def tell_worker(self, message: dict[str, Any], seconds: float, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Send a command to the worker and return its answer; an error of the candidate ends the build."""
        with contextlib.suppress(OSError):
            self.worker.channel.send(message, descriptors)
        answer = self.hear(self.worker, monotonic() + seconds)
        if answer.get("event") == "error":
            raise Stopped("build", f"{message['do']}: {str(answer.get('text'))[:1500]}")
        return answer

    def ask_oracle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a command to the oracle and return its answer; until it is here, the oracle is of use to nobody else."""
        self.host.is_dirty = True
        with contextlib.suppress(OSError):
            self.host.child.channel.send(message)
        answer = self.hear(self.host.child, monotonic() + self.deadlines.step)
        if answer.get("event") != _ORACLE_ANSWERS[message["do"]]:
            raise Stopped("oracle", f"{message['do']}: answered {str(answer)[:200]}")
        self.host.is_dirty = False
        return answer

    def hear(self, child: Child, deadline: float) -> dict[str, Any]:
        """Return a process's next message."""
        message = self._guard(child, lambda: child.receive(deadline))
        if child is not self.worker and message.get("event") == "error":
            raise Stopped("oracle", str(message.get("text"))[:1500])
        return message

    def expect(self, message: dict[str, Any], event: str) -> None:
        """Raise Stopped unless a message is of one kind."""
        if message.get("event") == "error":
            raise Stopped("build", str(message.get("text"))[:1500])
        if message.get("event") != event:
            raise Stopped("protocol", f"expected {event!r}; got {str(message)[:200]}")

    def ring(self, order: dict[str, Any], *, is_first: bool = False) -> Rung:
        """Start one call; wait for the answer and for the oracle's copy of it. The clock is this process's own.

        The oracle completes the inputs only now, when everything else stands ready.
        """
        number, oracle = int(order["number"]), self.host.child
        seconds = max(self.deadlines.call, self.deadlines.first if is_first else 0.0)
        bell, own_bell = self.host.bell, self.host.own_bell
        told = {name: value for name, value in order.items() if name != "hold_us"}
        armed = self.tell_worker(told | {"do": "call", "seconds": seconds}, self.deadlines.step)
        self.expect(armed, "armed")
        self.host.is_dirty = True
        judge = {name: order[name] for name in ("number", "slot", "noop", "flush_bytes", "hold_us")}
        with contextlib.suppress(OSError):
            oracle.channel.send(judge | {"do": "judge", "seconds": seconds})
        deadline = monotonic() + seconds
        own_bell.ring(RELEASE, number)
        self._await(own_bell, RELEASED, number, deadline)
        start_ns = perf_counter_ns()
        bell.ring(GO, number)
        done_ns = self._await(bell, DONE, number, deadline) - start_ns
        snap_ns = self._await(own_bell, SNAPPED, number, deadline) - start_ns
        called = self.hear(self.worker, deadline + 1)
        self.expect(called, "called")
        told_ns = perf_counter_ns()
        judged = self.hear(oracle, monotonic() + self.deadlines.step)
        self.expect(judged, "judged")
        self.host.is_dirty = False
        return Rung(done_ns, snap_ns, judged, called, perf_counter_ns() - told_ns)

    def part(self) -> None:
        """Say goodbye to the worker; anything that still comes after it was not asked for."""
        with contextlib.suppress(OSError):
            self.worker.channel.send({"do": "bye"})
        try:
            message = self.worker.receive(monotonic() + self.deadlines.end)
        except (EOFError, TimeoutError):
            return
        except ProtocolError as error:
            raise Stopped("protocol", f"after the end: {error}") from error
        raise Stopped("protocol", f"after the end came {str(message)[:200]}")

    def _await(self, bell: Doorbell, cell: int, number: int, deadline: float) -> int:
        """Wait for a counter and return the time; look for a dead process every quarter of a second."""
        while True:
            try:
                bell.wait(cell, number, min(deadline, monotonic() + 0.25))
                return perf_counter_ns()
            except TimeoutError as error:
                for child in (self.worker, self.host.child):
                    if child.exit_code(0) is not None:
                        self.hear(child, monotonic())
                if monotonic() > deadline:
                    raise Stopped("timeout", "the doorbell was not answered in time") from error

    def _guard(self, child: Child, receive: Callable[[], _Heard]) -> _Heard:
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
