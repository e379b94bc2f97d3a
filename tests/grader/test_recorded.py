"""Evidence of grades that ran on an H200: today's rules judge it again, without a GPU.

``recorded/`` holds what the grader wrote: two of our kernels, and an eager baseline whose many launches a noisy host
stalled now and then. All three are honest; none may raise anything.
"""

import gzip
from pathlib import Path

import msgspec
import pytest

from grading.evidence import Evidence, read_evidence
from grading.verdict import judge
from grading.verdict_timing import summarise

RECORDED = Path(__file__).parent / "recorded"
DEVICE_US = {
    "h200_topk_kernel": [10.5, 6.0, 9.2, 6.2, 5.4],
    "h200_paged_attention_kernel": [18.0, 81.9, 29.5, 37.5, 13.0],
    "h200_topk_eager": [66.2, 115.6, 115.0, 96.7, 42.6],
}


def load(name: str) -> Evidence:
    return read_evidence(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("name", DEVICE_US)
def test_an_honest_grade_on_a_gpu_raises_nothing(name: str) -> None:
    verdict = judge(load(name))
    assert (verdict.word, verdict.fired, verdict.isolation) == ("verified", [], "A")


@pytest.mark.parametrize("name", DEVICE_US)
def test_the_documented_times_follow_from_the_evidence(name: str) -> None:
    shapes = [summarise(shape) for shape in load(name).passes[0].shapes]
    times = [round(shape.median_ms * 1000, 1) for shape in shapes if shape is not None]
    assert times == pytest.approx(DEVICE_US[name], abs=0.06)


@pytest.mark.parametrize("name", ["h200_topk_kernel", "h200_paged_attention_kernel"])
def test_the_outside_clock_agrees_within_forty_microseconds(name: str) -> None:
    for shape in load(name).passes[0].shapes:
        times = summarise(shape)
        assert times is not None
        assert abs(times.outside_ms - times.median_ms) < 0.040
        assert times.p95_ms - times.p5_ms < 0.3 * times.median_ms


def test_a_claim_of_a_tenth_of_the_time_is_not_believed() -> None:
    evidence = load("h200_topk_eager")
    shapes = [
        msgspec.structs.replace(
            shape,
            calls=[msgspec.structs.replace(call, claim_ns=call.claim_ns // 10) for call in shape.calls],
        )
        for shape in evidence.passes[0].shapes
    ]
    forged = msgspec.structs.replace(
        evidence, passes=[msgspec.structs.replace(evidence.passes[0], number=n, shapes=shapes) for n in (1, 2)]
    )
    assert "T1.outside" in judge(forged).rules()
