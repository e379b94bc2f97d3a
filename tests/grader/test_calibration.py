"""The calibration kernel's reading on a device that comes up to speed; the kernel itself needs a GPU."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="the oracle needs PyTorch")

from grading.oracle.calibration import settled_least


def readings(*values: float) -> Iterator[float]:
    yield from values
    while True:
        yield values[-1]


def test_a_slow_start_does_not_enter_the_reading() -> None:
    """Read on an H200: 0.300 ms after seventeen idle seconds of a build, 0.287 ms three minutes later."""
    slow = readings(*[0.3005, 0.3] * 6, 0.295, 0.29, 0.287)
    assert settled_least(lambda: next(slow)) == 0.287


def test_a_steady_device_is_read_a_few_times_only() -> None:
    taken = []
    assert settled_least(lambda: taken.append(1) or 0.287) == 0.287
    assert len(taken) == 13


def test_a_reading_that_falls_for_ever_ends() -> None:
    falling = iter([0.99**n for n in range(1000)])
    assert settled_least(lambda: next(falling)) == pytest.approx(0.99**99)
