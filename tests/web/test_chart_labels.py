"""Numbers of a drawing's points: beside their points, on nothing else, within the drawing."""

import itertools

import pytest

from leaderboard.charts.labels import place_labels

FRAME = (0.0, 0.0, 600.0, 300.0)
CLOSE = [(300.0 + 9 * index, 150.0 + 3 * index) for index in range(8)]
SAME = [(300.0, 150.0 + 12 * index) for index in range(8)]
EDGE = [(2.0, 2.0), (598.0, 298.0), (598.0, 2.0), (2.0, 298.0), (300.0, 1.0)]


def boxes_of(points: list[tuple[float, float]]) -> list[tuple[float, float, float, float]]:
    texts = [str(number) for number in range(1, len(points) + 1)]
    places = place_labels(points, texts, FRAME)
    return [(x, y - 9, x + 7.0 * len(text), y) for (x, y), text in zip(places, texts, strict=True)]


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize(
    "points", [CLOSE, SAME, EDGE, [(10.0, 10.0)], []], ids=["close", "same x", "edge", "one", "none"]
)
def test_no_number_stands_on_another_or_on_a_point(points: list[tuple[float, float]]) -> None:
    boxes = boxes_of(points)
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    dots = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    assert not [(box, dot) for box in boxes for dot in dots if overlap(box, dot)]


@pytest.mark.parametrize("points", [CLOSE, SAME, EDGE])
def test_no_number_leaves_the_drawing(points: list[tuple[float, float]]) -> None:
    for left, top, right, bottom in boxes_of(points):
        assert left >= 0 and top >= 0 and right <= 600 and bottom <= 300
