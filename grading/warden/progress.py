"""What a person sees during a grade and after it."""

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TextIO

from grading.evidence import PassEvidence, ShapeEvidence, Traffic, shape_label
from grading.verdict import outcome_of
from grading.verdict_timing import Summary
from grading.warden.grade import Grade
from grading.warden.onepass import Pass

_EVERY_SECONDS = 0.2
_MOST_FIRED = 25


class Progress:
    """Shows the step and the count of calls: on one line of a terminal, else a line per step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._started = monotonic()
        self._shown_at, self._last = 0.0, ""

    def on_step(self, name: str, taken: Pass) -> None:
        """Show a step."""
        text = f"pass {taken.number}: {name}"
        now = monotonic()
        if self._is_terminal:
            if text == self._last and now - self._shown_at < _EVERY_SECONDS:
                return
            line = f"{now - self._started:6.1f} s  {text}, {len(taken.calls)} calls"
            self._stream.write(f"\r\033[K{line}")
            self._stream.flush()
        elif text != self._last:
            self._stream.write(f"{now - self._started:6.1f} s  {text}\n")
        self._shown_at, self._last = now, text

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._last:
            self._stream.write("\r\033[K")
            self._stream.flush()


def table(done: Grade, times: Sequence[Summary | None]) -> str:
    """Return the verdict, each shape's calls and times, and every rule that fired."""
    verdict, evidence = done.verdict, done.evidence
    lines = [f"{evidence.problem} on {evidence.device}, tier {evidence.tier}, isolation {verdict.isolation}"]
    if evidence.passes:
        lines.append("shape  calls  worst error  device ms   p5 .. p95 ms          outside ms          deck ms  size")
        shapes = evidence.passes[0].shapes
        lines += [_row(index, shape, time) for index, (shape, time) in enumerate(zip(shapes, times, strict=True))]
    lines += [f"not listed: {shape_label(item.shape)}: {outcome_of(item)}" for item in evidence.neighbours]
    lines += [line for taken in evidence.passes for line in _moved(taken)]
    lines += [_durations(taken) for taken in evidence.passes]
    if evidence.gpu_seconds is not None:
        lines.append(f"the GPU was held for {evidence.gpu_seconds:.1f} s")
    for item in verdict.fired[:_MOST_FIRED]:
        where = f"pass {item.in_pass}" + (f" shape {item.shape}" if item.shape is not None else "")
        lines.append(f"{item.rule}: {item.word}, {where}, {item.count} times: {item.message}")
    if len(verdict.fired) > _MOST_FIRED:
        lines.append(f"and {len(verdict.fired) - _MOST_FIRED} more rules; see verdict.json")
    return "\n".join([*lines, f"verdict: {verdict.word}"])


def _moved(taken: PassEvidence) -> Iterator[str]:
    """Yield what a call of each counted shape moves; one line where the reason is everywhere the same."""
    found = {index: _traffic(shape.traffic) for index, shape in enumerate(taken.shapes) if shape.traffic is not None}
    for text in dict.fromkeys(found.values()):
        shapes = ", ".join(str(index) for index, own in found.items() if own == text)
        yield f"DRAM a call, pass {taken.number} shape {shapes}: {text}"


def _traffic(traffic: Traffic) -> str:
    moved, least = traffic.dram_bytes, traffic.least_bytes
    if moved is None or traffic.model is None:
        return f"not counted: {traffic.unread or 'a flush counts as another amount than it writes'}"
    avoided = "" if least is None else f" of {least / 1e6:.1f} that none can avoid"
    return f"{moved / 1e6:.1f} MB{avoided}, tensor cores {traffic.model.tensor_util:.0f} % of the window"


def _durations(taken: PassEvidence) -> str:
    steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken.step_seconds.items())
    return f"pass {taken.number} took {sum(taken.step_seconds.values()):.1f} s: {steps}"


def _row(index: int, shape: ShapeEvidence, time: Summary | None) -> str:
    ratios = [call.ratio for call in shape.calls]
    worst = "no answer" if not ratios or None in ratios else f"{max(r for r in ratios if r is not None):.2g} tol"
    timing = "         -             -                     -                -"
    if time is not None:
        deck = "-" if time.deck_ms is None else f"{time.deck_ms:.4f}"
        span = f"{time.p5_ms:.4f} .. {time.p95_ms:.4f}"
        timing = f"{time.median_ms:>9.4f}   {span:<20}  {time.outside_ms:>8.4f} ±{time.spread_ms:.4f}  {deck:>9}"
    return f"{index:>5}  {len(shape.calls):>5}  {worst:>11}  {timing}  {shape_label(shape.shape)}"
