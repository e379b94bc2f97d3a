"""What a child process is told, what it gives back, and how the parent runs one."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from grading.card import find_card, name_inside
from grading.cpushapes import shapes_for
from grading.problem import Shape, load_problem
from grading.runner.recording import ROOT
from grading.survey.book import ItemFailed, OutOfTime
from grading.survey.items import Solution

_SAID_CHARACTERS = 600
Result = TypeVar("Result", bound=msgspec.Struct)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A solution for the child: its name, what it is, and the file that holds it."""

    name: str
    kind: str
    path: str
    digest: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One item for the child.

    shapes        indices into the device's shapes; empty = all of them
    draws, first  how many numbered contents, and the number of the first one
    each_seconds  the limit of one solution, or of one kernel at one shape; None = none
    """

    survey: str
    device: str
    problem: str
    gpu: str
    solutions: list[Named]
    shapes: list[int] = []
    draws: int = 3
    first: int = 0
    each_seconds: float | None = None

    def chosen_shapes(self) -> list[tuple[int, Shape]]:
        """Return index and shape of what is to be measured, of the shapes that the device grades."""
        known = list(enumerate(shapes_for(load_problem(*self.problem.split("/", 1)), self.device)))
        return [known[index] for index in self.shapes] if self.shapes else known


@dataclass(frozen=True)
class Runner:
    """Runs children. ``sources`` gets the files of solutions that are put together here, such as the cheats."""

    sources: Path

    def name(self, solution: Solution) -> Named:
        """Return a solution for the child, its source written to a file."""
        path = self.sources / solution.problem.deck / solution.problem.id / f"{solution.name}.py"
        if not path.exists() or path.read_bytes() != solution.text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(solution.text)
        return Named(name=solution.name, kind=solution.kind, path=str(path), digest=solution.digest)

    def run(self, work: Work, seconds: float, result: type[Result]) -> Result:
        """Run a child to its end and return its result.

        Raises ItemFailed with the end of what it said, and OutOfTime with what it had written when it had to be ended.
        """
        with TemporaryDirectory(prefix="survey-") as folder:
            job, out, log = (Path(folder) / name for name in ("work.json", "result.json", "log"))
            inside = msgspec.structs.replace(work, device=name_inside(work.device))
            job.write_bytes(msgspec.json.encode(inside))
            with log.open("wb") as stream:
                process = subprocess.Popen(
                    [sys.executable, "-m", "grading.survey.child", str(job), str(out)],
                    cwd=ROOT,
                    env=_environment(work.device),
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    code = process.wait(None if seconds == float("inf") else seconds)
                except subprocess.TimeoutExpired:
                    raise OutOfTime(_read(out, result)) from None
                finally:
                    _end(process)
            found = _read(out, result)
            if code != 0 or found is None:
                said = log.read_text(encoding="utf-8", errors="replace").strip()[-_SAID_CHARACTERS:]
                raise ItemFailed(f"the child ended with status {code}: {said}")
        return found


def _environment(device: str) -> dict[str, str]:
    """Return the child's environment, as in the grader's jail: one GPU, or kernels in Triton interpreted."""
    own = {"PYTHONDONTWRITEBYTECODE": "1"}
    card = find_card(device)
    return os.environ | own | (card.environment if card else {"TRITON_INTERPRET": "1"})


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(out: Path, result: type[Result]) -> Result | None:
    return msgspec.json.decode(out.read_bytes(), type=result) if out.exists() else None
