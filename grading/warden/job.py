"""What all passes of a grade have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from grading.oracle.gates import Gate
from grading.problem import Shape
from grading.warden.plan import Effort
from grading.warden.process import LIMITS, Limits
from grading.warden.talk import Deadlines

DEADLINES = Deadlines(first=300.0)


@dataclass(frozen=True)
class Job:
    """The problem, the bundle and how much is asked of it.

    gates    tolerances that were measured for the problem, which go before those that are built in
    least_bytes  what no call of a shape avoids to move, where its traffic is counted
    adapter  what calls the bundle through the deck's entry points; None where its model takes the reference's tensors
    listed   the shapes that the candidate is told of, where they are others than those it is asked about
    """

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
    gates: Mapping[str, Gate] = field(default_factory=dict)
    adapter: Path | None = None
    listed: tuple[Shape, ...] = ()
    shows_reference: bool = True
    has_census: bool = False
    least_bytes: tuple[float | None, ...] = ()
    started: float = field(default_factory=monotonic)
