"""Effort that follows what a call takes: how long the device is held, and how many calls are made."""

from dataclasses import replace

import pytest

from grading.evidence import ShapeEvidence
from grading.verdict_timing import summarise
from grading.warden.grade import Grade
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import FULL_GPU, QUICK, Effort, shared
from tests.grader.support import OPS, TINY, grade_source

ONE = [{"M": 32, "N": 48, "K": 64}]
EFFORT = replace(TINY, timed=60, edits=20, unheld=6, passes=1)
MODEL = """
import time, torch
from torch import nn

class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 6:
            time.sleep({seconds})
        return (x.float() @ self.weight.float()).bfloat16()
"""


@pytest.fixture(scope="module")
def host():
    with OracleHost("cpu", [OPS]) as running:
        yield running


def graded(host: OracleHost, effort: Effort, seconds: float = 0.0) -> Grade:
    return grade_source("M", MODEL.replace("{seconds}", str(seconds)), host, effort=effort, shapes=ONE)


def counts(shape: ShapeEvidence) -> dict[str, int]:
    groups = [call.group for call in shape.calls]
    return {name: groups.count(name) for name in ("timed", "edit", "unheld", "addresses", "structural")}


def test_a_shape_that_may_take_no_time_still_gets_every_probe(host: OracleHost) -> None:
    whole, hurried = graded(host, EFFORT), graded(host, replace(EFFORT, seconds=0.001))
    assert (whole.verdict.word, hurried.verdict.word) == ("verified", "verified")
    wanted = {"timed": 61, "edit": 20, "unheld": 6, "addresses": 6, "structural": 2}
    assert counts(whole.evidence.passes[0].shapes[0]) == wanted
    assert counts(hurried.evidence.passes[0].shapes[0]) == wanted | {"timed": 25, "edit": 6, "unheld": 4}


def test_a_candidate_that_is_slow_at_first_is_probed_no_less(host: OracleHost) -> None:
    found = counts(graded(host, replace(EFFORT, seconds=20.0), 0.5).evidence.passes[0].shapes[0])
    assert (found["edit"], found["timed"]) == (20, 25)


def test_many_shapes_share_the_time_of_a_pass() -> None:
    assert [shared(FULL_GPU, count).seconds for count in (1, 3, 4, 18)] == [
        24.0,
        20.0,
        15.0,
        pytest.approx(3.33, abs=0.01),
    ]
    assert shared(QUICK, 18) == QUICK


def test_after_a_plainly_wrong_shape_the_others_are_asked_little(host: OracleHost) -> None:
    # An H200 spent 80 of 102 seconds on the times of a wrong answer's other shapes.
    shapes = [*ONE, {"M": 16, "N": 32, "K": 64}]
    source = MODEL.replace("{seconds}", "0").replace("return (", "return (self.calls == 1) * (")
    first, second = grade_source("M", source, host, effort=EFFORT, shapes=shapes).evidence.passes[0].shapes
    assert counts(first)["timed"] > 60 and len(second.calls) < len(first.calls) / 3
    assert {"timed", "unheld", "recalled"}.isdisjoint(call.group for call in second.calls)
    assert {"structural", "edit", "new_weights", "addresses"} <= {call.group for call in second.calls}
    assert summarise(second) is None


def test_a_shape_that_is_never_right_is_given_up(host: OracleHost) -> None:
    # An H200 spent 309 of 325 seconds on the calls of a wrong rollout's only shape.
    shapes = [*ONE, {"M": 16, "N": 32, "K": 64}]
    source = MODEL.replace("{seconds}", "0").replace("return (", "return 2 * (")
    done = grade_source("M", source, host, effort=EFFORT, shapes=shapes)
    assert [len(shape.calls) for taken in done.evidence.passes for shape in taken.shapes] == [12, 12]
    assert done.verdict.word == "incorrect"


@pytest.mark.parametrize(
    "answer",
    ["(self.calls == 1) * (", "(self.calls == 12) * ("],
    ids=["right at first, as whoever remembers", "right once"],
)
def test_whoever_is_right_once_gets_all_calls(host: OracleHost, answer: str) -> None:
    source = MODEL.replace("{seconds}", "0").replace("return (", f"return {answer}")
    done = grade_source("M", source, host, effort=EFFORT, shapes=ONE)
    assert len(done.evidence.passes[0].shapes[0].calls) > 100
    assert done.verdict.word == "incorrect"


def test_calls_without_a_hold_are_compared_like_all_others(host: OracleHost) -> None:
    source = MODEL.replace("{seconds}", "0").replace("return (", "return (self.calls == 1) * (")
    done = grade_source("M", source, host, effort=EFFORT, shapes=ONE)
    wrong = {call.group for call in done.evidence.passes[0].shapes[0].calls if call.bad}
    assert done.verdict.word == "incorrect" and {"unheld", "timed", "warmup"} <= wrong
