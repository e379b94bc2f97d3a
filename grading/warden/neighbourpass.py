"""The pass over neighbour shapes: the battery without a clock, in a worker of its own that may refuse, err or die.

It comes after the passes that count and adds nothing to their evidence.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from grading.evidence import Neighbour
from grading.problem import Shape
from grading.warden.job import Job
from grading.warden.onepass import Pass
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import NEIGHBOUR
from grading.warden.talk import Stopped, Talk


@dataclass
class _NeighbourPass(Pass):
    """A pass that goes on when a shape is refused; there are no rehearsals, since nothing is timed.

    until  on the monotonic clock; no shape is begun after it
    """

    until: float = inf
    seen: dict[int, Neighbour] = field(default_factory=dict)

    def _rehearse(self, talk: Talk) -> None:
        self._noops = [[] for _ in self.job.shapes]

    def _build_models(self, talk: Talk) -> None:
        """Build none: a shape's model is built when its turn comes, so that one refusal leaves the others."""

    def _run_shape(self, talk: Talk, index: int) -> None:
        if monotonic() > self.until:
            return
        shape = {name: float(value) for name, value in self.job.shapes[index].items()}
        reached = len(self.shapes)
        ended, detail = "complete", ""
        try:
            super()._run_shape(talk, index)
        except Stopped as error:
            ended, detail = error.ended, error.detail
            if ended != "build":
                raise
        finally:
            calls = self.shapes[-1].calls if len(self.shapes) > reached else []
            self.seen[index] = Neighbour(shape=shape, ended=ended, detail=detail[:500], calls=calls)


def run_neighbours(
    job: Job, shapes: list[Shape], host: OracleHost, on_step: Callable[[str, Pass], None], until: float
) -> list[Neighbour]:
    """Ask a candidate about shapes that are not listed; return what was seen of each, in the same order.

    A shape that the pass did not come to, since the one before ended the worker or time was up, has ``ended``
    "unreached".
    """
    own = replace(job, shapes=shapes, listed=tuple(job.shapes), effort=NEIGHBOUR, has_census=False, floors_ms=())
    taken = _NeighbourPass(own, 0, host, lambda step, taken: on_step(f"neighbours: {step}", taken), until=until)
    taken.run()
    missing = [{name: float(value) for name, value in shape.items()} for shape in shapes]
    unreached = [Neighbour(shape=shape, ended="unreached", detail="", calls=[]) for shape in missing]
    return [taken.seen.get(index, unreached[index]) for index in range(len(shapes))]
