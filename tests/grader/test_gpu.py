"""The part of the suite that needs a GPU, at sizes where the outside clock decides.

A grader version counts on a host only after these have passed there.
"""

import pytest

torch = pytest.importorskip("torch", reason="the grader's GPU tests need PyTorch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from grading.warden.grade import grade  # noqa: E402
from grading.warden.plan import Effort  # noqa: E402
from tests.grader.support import candidates, files_of, make_request  # noqa: E402

pytestmark = pytest.mark.gpu
SHAPES = {"M": [{"M": 8192, "N": 8192, "K": 4096}], "S": [{"rows": 8192, "columns": 8192}]}
EFFORT = Effort(2, 6, 40, 8, 6, 40, 8, (3, 6), 3, 1, False)
CHEATS, HONEST = list(candidates("gpu_cheats")), list(candidates("gpu_honest"))


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_caught_by_the_named_rule(cheat) -> None:
    request = make_request(cheat.op, files_of(cheat.path), device="cuda:0", effort=EFFORT, shapes=SHAPES[cheat.op])
    done = grade(request)
    assert done.verdict.word == cheat.expect, done.verdict.fired
    assert cheat.rule in done.verdict.rules()


@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.name)
def test_an_honest_solution_raises_nothing(honest) -> None:
    request = make_request(honest.op, files_of(honest.path), device="cuda:0", effort=EFFORT, shapes=SHAPES[honest.op])
    done = grade(request)
    assert done.verdict.word in ("verified", "verified_note"), done.verdict.fired
