"""Benchmark and check logs as typed measurements, markers and faults.

A line counts only when it follows the grammar as a whole. A line that holds a scored marker and does not follow it is a
fault: never used, never dropped in silence. No marker is chosen here: all are kept, in order, with their lines.

What the names in a `Log` mean:

* A mega line's ``ms/tok`` is ``ms``, its baseline ``baseline_ms``.
* A ``peak_fraction=`` inside a shape line is ``fraction``.
* ``speedup_vs_eager`` lines carry the quantity ``speedup`` with source ``fraction``: derived from two timed lines.
* Markers ``variant_start``, ``variant_end`` and ``variant_error`` hold ``<shape> <variant> <time>``; the last one also
  holds the error's type.
* ``STRESS_DISABLED`` is any line that shows the switch of the stress cases turned off.
* Numbers with thousands separators are kept without them.

Source: docs/method.md "Logs".
"""

import hashlib
import re
from collections.abc import Callable
from itertools import islice

from grading.logs.grammar import (
    COMMON_GROUPS,
    FAULTY_LINE,
    LINES,
    MAX_LINE_BYTES,
    NUMBER,
    RARE,
    RARE_GROUPS,
    RARE_LINE,
    SHAPED,
)
from grading.record import Log, LogFault, Marker, Measurement, Reading

MAX_LINES = 5000
MAX_FAULTS = 200
MAX_MARKER_CHARS = 1000

_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_ANY_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_BYTE = re.compile(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INNER_RETURN = re.compile(rb"\r(?!\n)")
_A_NUMBER = re.compile(NUMBER, re.ASCII)
_A_PAIR = re.compile(r"([a-z_]+)[=:]\s*(\S+)", re.ASCII)
_DEVICE = re.compile(r"(.{1,200}?) x([0-9]{1,4}) \(visible=.*", re.ASCII)
_TEXT_VALUES = frozenset({"shape", "variant", "event", "ts", "error"})
_QUANTITIES = {"peak_fraction": "fraction"}


def read_benchmark(data: bytes, file: str, digest: str | None = None) -> Log:
    """Return what a benchmark log says; a launcher's ``meta.log`` is read alike.

    data    the file's bytes, whatever they hold
    file    the path inside the run, for messages
    digest  SHA-256 hex digest of data, where the caller knows it
    Never raises: what breaks the grammar is in `Log.faults`.
    """
    state = _read(data)
    return state.log(file, digest or hashlib.sha256(data).hexdigest(), state.dialect())


def read_check(data: bytes, file: str, digest: str | None = None) -> Log:
    """Return what a check log says; arguments and guarantees are those of `read_benchmark`."""
    return _read(data).log(file, digest or hashlib.sha256(data).hexdigest(), "check")


class _State:
    """What has been read of one log so far."""

    __slots__ = ("device", "dialects", "faults", "is_ascii", "is_roofline", "markers", "measurements")

    def __init__(self, is_ascii: bool) -> None:
        self.is_ascii = is_ascii
        self.measurements: list[Measurement] = []
        self.markers: list[Marker] = []
        self.faults: list[LogFault] = []
        self.is_roofline = False
        self.dialects: set[str] = set()
        self.device: str | None = None

    def mark(self, name: str, text: str, line: int) -> None:
        if not self.is_ascii:
            text = _as_utf8(text)
        if len(text) > MAX_MARKER_CHARS:
            text = text[: MAX_MARKER_CHARS - 1] + "…"
        self.markers.append(Marker(name, text, line))

    def fault(self, reason: str, line: int, is_hostile: bool = False) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(LogFault(reason, line, is_hostile))
        elif len(self.faults) == MAX_FAULTS:
            self.faults.append(LogFault(f"more than {MAX_FAULTS} faults; the rest is left out", line, True))

    def dialect(self) -> str:
        if not self.dialects:
            return "roofline" if self.is_roofline else "none"
        is_one = len(self.dialects) == 1 and (not self.is_roofline or "top_p" in self.dialects)
        return next(iter(self.dialects)) if is_one else "mixed"

    def log(self, file: str, digest: str, dialect: str) -> Log:
        return Log(
            file=file,
            digest=digest,
            dialect=dialect,
            measurements=tuple(self.measurements),
            markers=tuple(self.markers),
            faults=tuple(self.faults),
            device=self.device,
        )


def _read(data: bytes) -> _State:
    is_ascii = data.isascii()
    state = _State(is_ascii)
    text = data.decode("ascii" if is_ascii else "latin-1")
    if len(data) > MAX_LINE_BYTES:
        text = _without_long_lines(text, state)
    line, has_unknown_lines = 0, not is_ascii
    for match in islice(LINES.finditer(text), MAX_LINES):
        index = match.lastindex
        if index is None:
            if match.end() == match.start():
                break
            line += text.count("\n", match.start(), match.end())
            has_unknown_lines = True
            continue
        line += 1
        if index < RARE_LINE:
            handle, first = _COMMON[index]
            handle(state, match, first, line)
        else:
            _read_rare(state, match[index], index, line)
    else:
        state.faults.insert(
            0, LogFault(f"more than {MAX_LINES} marker lines and gaps; the rest is left out", line, True)
        )
        has_unknown_lines = True
    if has_unknown_lines:
        _check_bytes(data, state)
    return state


def _read_rare(state: _State, text: str, index: int, line: int) -> None:
    if index == FAULTY_LINE:
        _fault(state, text, line)
        return
    match = RARE.fullmatch(text)
    if match is None or match.lastindex is None:
        raise AssertionError(f"a rare line matches once only: {text!r}")
    handle, first = _RARE[match.lastindex]
    handle(state, match, first, line)


def _without_long_lines(text: str, state: _State) -> str:
    """Return the text with every line above the limit emptied, and a fault for each of them."""
    kept, position, line = [], 0, 1
    while position < len(text):
        window_end = position + MAX_LINE_BYTES + 1
        end = text.rfind("\n", position, window_end) if window_end < len(text) else len(text) - 1
        if end < 0:
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            state.fault(f"line is {end - position} bytes long; at most {MAX_LINE_BYTES} are read", line, True)
            kept.append("\n")
        else:
            kept.append(text[position : end + 1])
        line += text.count("\n", position, end + 1)
        position = end + 1
    return "".join(kept)


def _check_bytes(data: bytes, state: _State) -> None:
    """Add a fault for the first place of each kind of byte that no log has, unless its line is a fault already."""
    if len(data.translate(None, _CONTROLS)) != len(data):
        _fault_at(data, state, data.find(b"\0"), "NUL byte", is_hostile=True)
        control = _CONTROL_BYTE.search(data)
        _fault_at(data, state, control.start() if control else -1, "control character or escape sequence")
    if b"\r" in data:
        inner = _INNER_RETURN.search(data)
        _fault_at(data, state, inner.start() if inner else -1, "carriage return inside a line")
    if not state.is_ascii:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            _fault_at(data, state, error.start, "bytes that are not UTF-8")


def _fault_at(data: bytes, state: _State, offset: int, reason: str, is_hostile: bool = False) -> None:
    if offset < 0:
        return
    line = data.count(b"\n", 0, offset) + 1
    if all(fault.line != line for fault in state.faults):
        state.fault(reason, line, is_hostile)


def _as_utf8(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "replace")


def _bare(grouped: str) -> str:
    return grouped.replace(",", "")


_Handler = Callable[[_State, "re.Match[str]", int, int], None]


def _roofline(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, variant, tflops, gbps, ms = match.group(first, first + 1, first + 2, first + 3, first + 4)
    readings = (Reading("tflops", tflops, line), Reading("gbps", gbps, line), Reading("ms", ms, line))
    state.measurements.append(Measurement(shape, variant, "line", readings))
    state.is_roofline = True


def _fraction(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, fraction = match.group(first, first + 1)
    state.measurements.append(Measurement(shape, "solution", "fraction", (Reading("fraction", fraction, line),)))


def _versus_eager(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, speedup = match.group(first, first + 1)
    state.measurements.append(Measurement(shape, "solution", "fraction", (Reading("speedup", speedup, line),)))
    state.dialects.add("top_p")


def _pairs(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, variant, tail = match.group(first, first + 1, first + 2)
    pairs = [pair.split("=") for pair in tail.split(" ")]
    readings = tuple(Reading(_QUANTITIES.get(name, name), value, line) for name, value in pairs)
    state.measurements.append(Measurement(shape, variant, "line", readings))
    names = {name for name, _ in pairs}
    state.dialects.add("throughput" if "tok_s" in names else "steps" if "sps" in names else "multi")


def _event_start(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.markers.append(Marker("variant_start", " ".join(match.group(first, first + 1, first + 2)), line))


def _event_end(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, variant, time, elapsed_s, ms = match.group(first, first + 1, first + 2, first + 3, first + 4)
    state.markers.append(Marker("variant_end", f"{shape} {variant} {time}", line))
    readings = (Reading("ms", ms, line), Reading("elapsed_s", elapsed_s, line))
    state.measurements.append(Measurement(shape, variant, "event", readings))


def _event_error(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, variant, time, error = match.group(first, first + 1, first + 2, first + 4)
    state.mark("variant_error", f"{shape} {variant} {time} {error}", line)


def _named(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    name, text = match.group(first, first + 1)
    state.markers.append(Marker(name, text, line))


def _verdict(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.markers.append(Marker(match[first], "", line))


def _message(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    name, text = match.group(first, first + 1)
    if name == "device":
        _keep_device(state, text, line)
    state.mark(name.replace(" ", "_"), text, line)


def _keep_device(state: _State, text: str, line: int) -> None:
    """Keep the first device line; a launcher's ``<name> x4 (visible=4, …)`` becomes ``<name> x4``."""
    if not state.is_ascii:
        text = _as_utf8(text)
    found = _DEVICE.fullmatch(text)
    device = (f"{found[1]} x{found[2]}" if found else text).strip()[:200] or None
    if state.device is not None and device != state.device:
        state.fault("device line differs from an earlier one", line, True)
    state.device = state.device or device


def _rank(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.mark("FAIL", f"{match[first]}: {match[first + 1]}", line)


def _per_token(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    shape, ms, tok_s, baseline_ms, speedup = match.group(first, first + 1, first + 2, first + 3, first + 4)
    readings = (
        Reading("ms", ms, line),
        Reading("tok_s", tok_s, line),
        Reading("baseline_ms", baseline_ms, line),
        Reading("speedup", speedup, line),
    )
    state.measurements.append(Measurement(shape, "solution", "line", readings))
    state.dialects.add("per_token")


def _disagreement(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.mark("disagreement", f"{match[first]} {match[first + 1]}", line)


def _trial(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    seed, sps, elapsed_s, final_return = match.group(first, first + 1, first + 2, first + 3)
    found = (
        ("seed", seed[5:-1]),
        ("sps", _bare(sps)),
        ("elapsed_s", elapsed_s),
        ("final_return", final_return[14:]),
    )
    readings = tuple(Reading(name, text, line) for name, text in found if text)
    state.measurements.append(Measurement("0", "solution", "trial", readings))
    state.dialects.add("trials")


def _steps(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.markers.append(Marker("steps_per_second", _bare(match[first]), line))
    state.markers.append(Marker("peak_sps", _bare(match[first + 1]), line))


def _over_cap(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.markers.append(Marker("steps_per_second", _bare(match[first]), line))
    state.mark("exceeds_cap", match[first + 1], line)


def _below_floor(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.mark("below_floor", f"{match[first]} below floor {match[first + 1]}", line)


def _single(name: str) -> _Handler:
    def handle(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
        state.mark(name, match[first], line)

    return handle


def _agent_start(state: _State, match: "re.Match[str]", first: int, line: int) -> None:
    state.mark("agent_start", match[first], line)
    state.mark("budget_s", match[first + 1], line)


def _fault(state: _State, text: str, line: int) -> None:
    text = text.removesuffix("\r")
    shown = ascii(_as_utf8(text[:80]))
    kind, is_hostile = _why(text)
    state.fault(f"{kind}: {shown}", line, is_hostile)


def _why(text: str) -> tuple[str, bool]:
    """Return why a line with a marker breaks the grammar, and whether that looks deliberate.

    Glued text is not held against a run: a library that prints without a newline does that to an honest one.
    """
    if "\r" in text or _ANY_CONTROL.search(text):
        return "control character in a marker line", True
    if not SHAPED.fullmatch(text):
        return "marker glued to other text", False
    values = (value for name, value in _A_PAIR.findall(text) if name not in _TEXT_VALUES)
    wrong = next((value for value in values if not _A_NUMBER.fullmatch(value)), None)
    return ("malformed line" if wrong is None else f"malformed number {_as_utf8(wrong[:40])!a}"), False


_BY_KIND: dict[str, _Handler] = {
    "roofline": _roofline,
    "fraction": _fraction,
    "versus_eager": _versus_eager,
    "pairs": _pairs,
    "event_start": _event_start,
    "event_end": _event_end,
    "event_error": _event_error,
    "headline": _named,
    "result": _named,
    "verdict": _verdict,
    "message": _message,
    "rank": _rank,
    "seed": _named,
    "per_token": _per_token,
    "disagreement": _disagreement,
    "trial": _trial,
    "steps": _steps,
    "over_cap": _over_cap,
    "below_floor": _below_floor,
    "check": _named,
    "agent_exit": _single("agent_exit"),
    "agent_done": _single("agent_done"),
    "agent_start": _agent_start,
    "launcher": _single("launcher"),
    "stress_off": _single("STRESS_DISABLED"),
}
_COMMON = {index: (_BY_KIND[name], first) for index, (name, first) in COMMON_GROUPS.items()}
_RARE = {index: (_BY_KIND[name], first) for index, (name, first) in RARE_GROUPS.items()}
