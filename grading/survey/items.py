"""What a survey goes through: problems with a reference, their solutions, and cheats made from the eager ones."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from grading.problem import DECKS, Problem, load_decks
from grading.runner.demo import CONTROL, KERNELS
from grading.runner.job import may_use_forbidden
from grading.warden.bundles import Bundle, bundle_of_reference

Kind = Literal["right", "wrong", "cheat", "variant"]

CHEATS = Path(__file__).parent / "cheats"
CHEAT_PREFIX = "cheat_"
# Cheats that show in the numbers of one call; the others need several calls or a clock.
NUMERIC_CHEATS = ("zeros", "narrow_inputs", "drops_tail", "repeats_rows")
# Problems whose reference or learning takes long come last, the longest at the end.
_SLOWEST = (
    "cuda/01_glm52_fused_moe",
    "hard/02_kda_cutlass",
    "mega/02_kimi_linear_decode",
    "cuda/03_megaqwen_decode",
    "hard/06_sonic_moe_swiglu",
    "mega/01_rl_grid_ppo",
)
_FIRST = ("kernel", "vendor", "eager", "compiled")


@dataclass(frozen=True)
class Solution:
    """One solution of a problem: a file of ours, a variant that is being worked on, or a generic cheat."""

    problem: Problem
    name: str
    kind: Kind
    bundle: Bundle

    @property
    def key(self) -> str:
        """``deck/problem/name``, as in results and on the command line."""
        return f"{self.problem.key}/{self.name}"

    @property
    def text(self) -> bytes:
        """The source of ``solution.py``."""
        return self.bundle.files["solution.py"]

    @property
    def digest(self) -> str:
        """SHA-256 of the source and of the reference: another digest is another measurement."""
        return hashlib.sha256(self.text + reference_of(self.problem).read_bytes()).hexdigest()

    @property
    def expects(self) -> str:
        """The verdict that a wrong solution names on its first line, else an empty text."""
        first = self.text.decode().partition("\n")[0]
        return first.removeprefix("# expect: ") if first.startswith("# expect: ") else ""


def reference_of(problem: Problem) -> Path:
    """Return where a problem's reference lies, whether it exists or not."""
    return DECKS / problem.deck / problem.id / "reference.py"


def gradeable_problems() -> list[Problem]:
    """Return the problems that have a reference, those that take longest last."""
    rank = {key: place for place, key in enumerate(_SLOWEST, 1)}
    known = [problem for deck in load_decks().values() for problem in deck.problems.values()]
    return sorted((problem for problem in known if reference_of(problem).exists()), key=lambda p: rank.get(p.key, 0))


def own_solutions(problem: Problem, kind: Literal["right", "wrong"]) -> list[Solution]:
    """Return a problem's right solutions, our kernel first, or its wrong ones."""
    folder = reference_of(problem).parent / "solutions" / kind
    names = [path.stem for path in sorted(folder.glob("*.py"))]
    if kind == "right":
        names += ["kernel"] if problem.id in KERNELS else []
        names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [Solution(problem, name, kind, bundle_of_reference(problem, name)) for name in names]


def cheats_of(problem: Problem, names: Iterable[str] | None = None) -> list[Solution]:
    """Return generic cheats: the problem's eager solution with one of `CHEATS` behind it.

    names  without the prefix; None = all
    """
    honest = bundle_of_reference(problem, "eager").files["solution.py"]
    chosen = sorted(path.stem for path in CHEATS.glob("*.py")) if names is None else names
    made = []
    for name in chosen:
        text = honest + b"\n\n" + (CHEATS / f"{name}.py").read_bytes() + b"\n\nModel = cheat(Model)\n"
        is_exempt = may_use_forbidden("baseline", honest.decode())
        made.append(Solution(problem, CHEAT_PREFIX + name, "cheat", _bundle(text, CONTROL, is_exempt=is_exempt)))
    return made


def variant_of(problem: Problem, path: Path) -> Solution:
    """Return a file that is being worked on as a solution. Raises OSError."""
    return Solution(problem, path.stem, "variant", _bundle(path.read_bytes(), "unnamed", is_exempt=True))


def every_solution(problem: Problem) -> list[Solution]:
    """Return all that can be graded: right and wrong solutions, and the generic cheats."""
    return [*own_solutions(problem, "right"), *own_solutions(problem, "wrong"), *cheats_of(problem)]


def told_solutions(problem: Problem) -> list[Solution]:
    """Return what tells most about a problem: kernel, vendor, a wrong one, eager, compiled."""
    right = [solution for solution in own_solutions(problem, "right") if solution.name in _FIRST]
    wrong = [solution for solution in own_solutions(problem, "wrong") if solution.expects == "incorrect"][:1]
    place = sum(solution.name in ("kernel", "vendor") for solution in right)
    return [*right[:place], *wrong, *right[place:]]


def spread_out(groups: list[list[Solution]]) -> list[Solution]:
    """Return the first of each group, then the second ones and so on: a cut survey has something of every problem."""
    longest = max(map(len, groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)]


def matching(solutions: Iterable[Solution], patterns: list[str]) -> Iterator[Solution]:
    """Return the solutions whose key, or whose problem's key, one of the patterns matches; all without a pattern."""
    return (solution for solution in solutions if is_asked_for((solution.key, solution.problem.key), patterns))


def is_asked_for(keys: Iterable[str], patterns: list[str]) -> bool:
    """Tell whether one of the patterns matches one of the keys of a thing, or there is no pattern."""
    return not patterns or any(fnmatch(key, pattern) for key in keys for pattern in patterns)


def _bundle(text: bytes, model: str, *, is_exempt: bool) -> Bundle:
    return Bundle({"solution.py": text}, model, "baseline", is_exempt)
