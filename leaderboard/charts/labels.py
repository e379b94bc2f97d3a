"""Where the numbers of a drawing's points stand: beside their points, and on no other point or number."""

import itertools
from collections.abc import Sequence

Box = tuple[float, float, float, float]
_RADIUS = 7.0
# A digit in the larger of the two sizes that the stylesheet sets, so that narrow screens are safe as well.
_DIGIT, _HEIGHT = 10.0, 15.0
_STEPS = (10.0, 20.0, 30.0)
_SIDES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))


def place_labels(points: Sequence[tuple[float, float]], texts: Sequence[str], frame: Box) -> list[tuple[float, float]]:
    """Return the left end of each text's baseline, in drawing units.

    points  centres; texts  one per point; frame  left, top, right, bottom that no text leaves
    Each text in turn takes the first place near its point that touches nothing, or the one that touches least.
    """
    dots = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in points]
    taken: list[Box] = []
    for (x, y), text in zip(points, texts, strict=True):
        places = _places(x, y, _DIGIT * len(text))
        chosen = min(places, key=lambda box: (_touched(box, [*dots, *taken]) + _outside(box, frame), places.index(box)))
        taken.append(chosen)
    return [(left, bottom - 3) for left, _, _, bottom in taken]


def _places(x: float, y: float, width: float) -> list[Box]:
    """Return boxes around a point, the nearest first: right, left, above, below, and the corners."""
    found = []
    for step, (right, down) in itertools.product(_STEPS, _SIDES):
        centre_x, centre_y = x + right * (step + width / 2), y + down * (step + _HEIGHT / 2)
        found.append((centre_x - width / 2, centre_y - _HEIGHT / 2, centre_x + width / 2, centre_y + _HEIGHT / 2))
    return found


def _touched(box: Box, others: Sequence[Box]) -> float:
    """Return how much area of other boxes a box covers."""
    area = 0.0
    for other in others:
        across = min(box[2], other[2]) - max(box[0], other[0])
        area += max(0.0, across) * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
    return area


def _outside(box: Box, frame: Box) -> float:
    beyond = (frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3])
    return 1000.0 * sum(max(0.0, part) for part in beyond)
