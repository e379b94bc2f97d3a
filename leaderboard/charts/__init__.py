"""Charts: one function gives typed data; drawing, table, CSV, SVG and Plotly figure follow from it."""

from leaderboard.charts.common import Chart, Plot, Table
from leaderboard.charts.history import frontier_chart, spread_chart
from leaderboard.charts.roofline import roofline_chart
from leaderboard.charts.shapes import shape_chart

__all__ = ["Chart", "Plot", "Table", "frontier_chart", "roofline_chart", "shape_chart", "spread_chart"]
