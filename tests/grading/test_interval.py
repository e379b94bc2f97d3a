"""Intervals of printed numbers and their arithmetic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.interval import Interval, NumberError, exact, geometric_mean, intersect, printed


def test_a_printed_number_stands_for_what_rounds_to_it() -> None:
    interval = printed("0.0259")
    assert interval.value == 0.0259
    assert interval.low == pytest.approx(0.02585)
    assert interval.high == pytest.approx(0.02595)


def test_lost_trailing_zeros_are_restored_by_the_known_places() -> None:
    assert printed("0.43", places=4).high == pytest.approx(0.43005)


def test_more_digits_than_the_known_places_are_kept() -> None:
    assert printed("0.123456", places=4).high == pytest.approx(0.1234565)


def test_zero_is_a_value_with_an_interval() -> None:
    assert printed("0.000") == Interval(0.0, 0.0, 0.0005)


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-1", "+1", "1e400", "1,000", "٣", " 1", "1 ", "0x1", "1_0", ".5", "1.", "1e", "True"]
)
def test_it_refuses_what_is_no_plain_number(text: str) -> None:
    with pytest.raises(NumberError, match=r"number|finite"):
        printed(text)


def test_an_inverted_zero_is_open_above() -> None:
    assert printed("0.000").inverted(1.0).high == math.inf


def test_a_geometric_mean_does_not_underflow() -> None:
    assert geometric_mean([exact(5e-6)] * 5000).value == pytest.approx(5e-6)


def test_a_geometric_mean_of_nothing_is_an_error() -> None:
    with pytest.raises(NumberError):
        geometric_mean([])


def test_intervals_that_share_nothing_have_no_intersection() -> None:
    assert intersect([printed("1.0"), printed("2.0")]) is None


def test_the_narrowest_interval_gives_the_value() -> None:
    joined = intersect([printed("0.05"), printed("0.0512")])
    assert joined is not None
    assert joined.value == 0.0512


@given(st.floats(1e-4, 1e6), st.integers(1, 6))
def test_rounding_never_leaves_the_interval(value: float, places: int) -> None:
    interval = printed(f"{value:.{places}f}")
    assert interval.low <= value <= interval.high


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8), st.floats(1.001, 10))
def test_a_mean_of_scaled_parts_is_the_scaled_mean(values: list[float], factor: float) -> None:
    plain = geometric_mean(exact(value) for value in values)
    scaled = geometric_mean(exact(value).scaled(factor) for value in values)
    assert scaled.value == pytest.approx(plain.value * factor, rel=1e-9)
