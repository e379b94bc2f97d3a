"""What all charts share: each is typed data with a title, a summary in words, a table, and a figure for Plotly.

The server draws a chart from its template; colours of a figure are names of the site's tokens (``token:bar``), which
the reader's browser resolves, so that a figure follows the theme.
"""

from dataclasses import dataclass
from typing import Any, Protocol

Plot = dict[str, Any]
Value = str | int | float | None
_ENDS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """One line of an axis, with its label."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Table:
    """A chart's numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Chart(Protocol):
    """Every chart."""

    @property
    def title(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def template(self) -> str: ...

    @property
    def table(self) -> Table: ...

    @property
    def plot(self) -> Plot: ...


def round_end(highest: float) -> float:
    """Return a round number at or just above the highest value, for the end of an axis that starts at nothing."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** _floor_log(highest)
    return next(step * power for step in _ENDS if highest <= step * power * (1 + 1e-9))


def round_values(top: float) -> tuple[float, ...]:
    """Return the values at which an axis up to a round end has its lines: round ones as well."""
    lead = top / 10.0 ** _floor_log(top)
    parts = 4 if abs(lead - 2.0) < 1e-6 else 5
    return tuple(top * part / parts for part in range(parts + 1))


def _floor_log(value: float) -> int:
    power = 0
    while value >= 10:
        value, power = value / 10, power + 1
    while value < 1:
        value, power = value * 10, power - 1
    return power
