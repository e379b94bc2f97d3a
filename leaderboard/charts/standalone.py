"""A chart as a file of its own: SVG with its colours written in, and its numbers as CSV."""

import re

from django.template.loader import render_to_string

from leaderboard.charts.common import Chart
from leaderboard.csvtext import write_row
from leaderboard.svg import clean

_LOOK = {
    "grid": 'stroke="#dbe1e7"', "axis": 'fill="#566474" font-family="monospace" font-size="11"',
    "track": 'fill="#dfe9f2"', "value": 'fill="#3f7fb5"', "range": 'stroke="#d2451e" stroke-width="2"',
    "roof": 'fill="none" stroke="#0f1b2a" stroke-width="2"', "drop": 'stroke="#a9b5c1" stroke-dasharray="2 3"',
    "point": 'fill="#d2451e" stroke="#ffffff" stroke-width="2"', "floor": 'stroke="#0f1b2a" stroke-dasharray="3 2"',
    "strip": 'stroke="#3f7fb5" stroke-width="2"', "reference": 'stroke="#0f1b2a" stroke-dasharray="5 3"',
    "frontier": 'fill="none" stroke="#0b4a7d" stroke-width="2.5"', "dot": 'fill="#3f7fb5" stroke="#ffffff"',
    "dot dot--first": 'fill="#d2451e" stroke="#ffffff"',
}  # fmt: skip
_BOX = re.compile(r'<svg [^>]*viewBox="0 0 (\d+) (\d+)"[^>]*>')
_HEAD = 44


def draw_svg(chart: Chart, about: str) -> str:
    """Return a chart as an SVG document with a title line. `about` says of what it is."""
    inner = render_to_string(chart.template, {"chart": chart, "id": "chart"})
    box = _BOX.search(inner)
    width, height = (int(box[1]), int(box[2])) if box else (720, 320)
    body = inner[box.end() : inner.rindex("</svg>")] if box else inner
    body = re.sub(r'class="([a-z -]+)"', lambda found: _LOOK.get(found[1], ""), body)
    name = clean(f"{chart.title}: {about}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + _HEAD}" '
        f'viewBox="0 0 {width} {height + _HEAD}" role="img"><rect width="100%" height="100%" fill="#fdfdfc"/>'
        f'<g font-family="sans-serif" font-size="12" fill="#384657">'
        f'<text x="8" y="22" font-size="14" font-weight="bold" fill="#0f1b2a">{name}</text>'
        f'<g transform="translate(0 {_HEAD - 8})">{body}</g></g></svg>'
    )


def write_csv(chart: Chart) -> str:
    """Return a chart's numbers as CSV."""
    return write_row(chart.table.columns) + "".join(write_row(row) for row in chart.table.rows)
