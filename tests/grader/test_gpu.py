"""The part of the suite that needs a GPU, at sizes where the outside clock decides, and all the processor's candidates.

A grader version counts on a host only after these have passed there. The file needs neither Django nor the suite's
fixtures: ``python -m pytest -c /dev/null --noconftest tests/grader/test_gpu.py`` runs it on a bare GPU host. Cheats
that are caught whatever else uses the device can share it: ``-k crowd -n 3`` first, then ``-k "not crowd"``.
"""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="the grader's GPU tests need PyTorch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from grading.oracle.replay import Replayed, replayed  # noqa: E402
from grading.warden.grade import grade  # noqa: E402
from grading.warden.oraclehost import OracleHost  # noqa: E402
from grading.warden.plan import Effort  # noqa: E402
from tests.grader.support import OPS, Candidate, candidates, files_of, make_request  # noqa: E402

DEVICE = "cuda:0"
SHAPES = {
    "M": [{"M": 8192, "N": 8192, "K": 4096}],
    "F": [{"M": 2048, "N": 4096, "K": 4096}],
    "S": [{"rows": 8192, "columns": 8192}],
}
EFFORT = Effort(2, 6, 40, 10, 8, 6, 30, 8, (3, 6), 3, 1, False, unheld=8)
# Interpreted Triton, and two that read memory from the host by its address.
ON_PROCESSOR_ONLY = {"h24_interpreted_triton", "h27_to_the_last_byte", "c35_past_the_end"}
LARGE_CHEATS, LARGE_HONEST = list(candidates("gpu_cheats")), list(candidates("gpu_honest"))
SMALL = [c.as_on_gpu for folder in ("cheats", "honest") for c in candidates(folder) if c.name not in ON_PROCESSOR_ONLY]
HONEST = [candidate for candidate in SMALL if not candidate.expect]
# A process beside makes a grade inconclusive, which only these two verdicts outweigh.
IN_A_CROWD = [candidate for candidate in SMALL if candidate.expect in ("incorrect", "integrity")]
ALONE = [candidate for candidate in SMALL if candidate.expect and candidate not in IN_A_CROWD]


@pytest.fixture(scope="module")
def host() -> Iterator[OracleHost]:
    with OracleHost(DEVICE, [OPS]) as running:
        yield running


@pytest.mark.parametrize("cheat", LARGE_CHEATS, ids=lambda cheat: cheat.name)
def test_a_large_cheat_is_caught_by_the_named_rule(cheat: Candidate, host: OracleHost) -> None:
    request = make_request(cheat.op, files_of(cheat.path), device=DEVICE, effort=EFFORT, shapes=SHAPES[cheat.op])
    done = grade(request, host=host)
    assert done.verdict.word == cheat.expect, done.verdict.fired
    assert not cheat.rule or cheat.rule in done.verdict.rules()


@pytest.mark.parametrize("honest", LARGE_HONEST, ids=lambda honest: honest.name)
def test_a_large_honest_solution_raises_nothing(honest: Candidate, host: OracleHost) -> None:
    request = make_request(honest.op, files_of(honest.path), device=DEVICE, effort=EFFORT, shapes=SHAPES[honest.op])
    done = grade(request, host=host)
    assert done.verdict.word in ("verified", "verified_note"), done.verdict.fired


def expect_caught(cheat: Candidate, host: OracleHost) -> None:
    done = grade(make_request(cheat.op, files_of(cheat.path), device=DEVICE), host=host)
    assert done.verdict.word == cheat.expect, done.verdict.fired
    assert not cheat.rule or cheat.rule in done.verdict.rules(), done.verdict.fired


@pytest.mark.parametrize("cheat", IN_A_CROWD, ids=lambda cheat: cheat.name)
def test_a_cheat_in_a_crowd_is_caught_as_on_a_processor(cheat: Candidate, host: OracleHost) -> None:
    expect_caught(cheat, host)


@pytest.mark.parametrize("cheat", ALONE, ids=lambda cheat: cheat.name)
def test_a_cheat_alone_gets_the_verdict_that_it_names(cheat: Candidate, host: OracleHost) -> None:
    expect_caught(cheat, host)


@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.name)
def test_an_honest_solution_raises_nothing(honest: Candidate, host: OracleHost) -> None:
    done = grade(make_request(honest.op, files_of(honest.path), device=DEVICE, effort=EFFORT), host=host)
    assert done.verdict.word in ("verified", "verified_note"), done.verdict.fired


def many_steps(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Take so many small launches that the host needs longer than the device."""
    state, total = inputs[0].clone(), torch.zeros_like(inputs[0])
    for _ in range(3000):
        total = total + state * 0.5
        state = state.roll(1, 0)
    return [total]


def steps_that_look(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Wait for the device once, which no recording can hold."""
    return [part * float(inputs[0].sum() > 0) for part in many_steps(inputs)]


@pytest.mark.parametrize(("call", "is_recorded"), [(many_steps, True), (steps_that_look, False)])
def test_a_reference_of_many_launches_is_replayed_bit_for_bit(call, is_recorded: bool) -> None:
    asked = replayed(call, DEVICE)
    assert isinstance(asked, Replayed)
    for seed in range(40):
        torch.manual_seed(seed)
        inputs = [torch.rand(64, 64, device=DEVICE)]
        kept = inputs[0].clone()
        assert torch.equal(asked(inputs)[0], call(inputs)[0])
        assert torch.equal(inputs[0], kept)
    assert (asked.recording is not None) == is_recorded
    # A recording that failed would leave the generators unusable.
    torch.rand(8, device=DEVICE)
