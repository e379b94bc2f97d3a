"""Our own solutions of the hard deck on small shapes: right ones are verified, wrong ones get their named status.

Slow (a grade each): runs where PROOFLINE_SLOW is set; two of them run always.
"""

import os
from pathlib import Path

import pytest

from grading.problem import DECKS, load_problem
from grading.runner.job import may_use_forbidden
from grading.warden.grade import Request, grade
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import QUICK

SOLUTIONS = sorted(path for path in DECKS.glob("hard/*/solutions/*/*.py"))
ALWAYS = {("05_topk_bitonic", "vendor"), ("03_paged_attention", "ignores_tail")}
# torch.compile builds kernels with a compiler for minutes, and the child runs the same code without it.
COMPILED = {"compiled"}


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parts[-4]}-{path.parts[-2]}-{path.stem}")
def test_right_solutions_are_verified_and_wrong_ones_named(path: Path, host: OracleHost) -> None:
    problem_id, kind = path.parts[-4], path.parts[-2]
    if (problem_id, path.stem) not in ALWAYS and not os.environ.get("PROOFLINE_SLOW"):
        pytest.skip("a grade of its own; set PROOFLINE_SLOW to run it")
    if path.stem in COMPILED:
        pytest.skip("torch.compile on a processor takes minutes and adds nothing to eager")
    text = path.read_bytes()
    problem = load_problem("hard", problem_id)
    reference = DECKS / "hard" / problem_id / "reference.py"
    exempt = may_use_forbidden("baseline", text.decode())
    done = grade(Request(problem, reference, {"solution.py": text}, is_exempt=exempt, effort=QUICK), host=host)
    fired = [(item.rule, item.word, item.message) for item in done.verdict.fired]
    if kind == "right":
        assert done.verdict.word in ("verified", "verified_note"), (fired, done.outputs)
    else:
        # A forged marker can forge nothing here, so its answer is what it is judged by.
        expected = text.decode().splitlines()[0].removeprefix("# expect: ")
        accepted = {"incorrect"} if expected == "incorrect" else {"verified", "integrity", "incorrect"}
        assert done.verdict.word in accepted, fired
