"""The cells of a release as JSON, kept in the process for as long as the public state stays what it is."""

import datetime
import threading
from collections import OrderedDict
from dataclasses import dataclass

import orjson

from leaderboard import boards, representation
from leaderboard.boards import Cell
from leaderboard.boards.state import State
from leaderboard.models import Release

_KEPT = 4
_lock = threading.Lock()
_snapshots: OrderedDict[tuple[str, int], "Snapshot"] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All cells of one release, masked and ranked, and each as JSON by id."""

    release: int | None
    cells: tuple[Cell, ...]
    json: dict[str, bytes]


def find_snapshot(state: State, release: int | None) -> Snapshot | None:
    """Return the cells of a release by its number where they were asked for in this state before."""
    with _lock:
        held = _snapshots.get((state.token, release or 0))
        if held is not None:
            _snapshots.move_to_end((state.token, release or 0))
        return held


def read_snapshot(state: State, release: Release | None, at: datetime.datetime) -> Snapshot:
    """Return the cells of a release as the state has them; from memory where it was asked before.

    state  read before this call and at the same moment, so that what is kept is never older than its key
    """
    if release is None:
        return Snapshot(None, (), {})
    held = find_snapshot(state, release.number)
    if held is not None:
        return held
    cells = tuple(boards.read_cells(release, at))
    texts = {cell.id: orjson.dumps(representation.cell_data(cell)) for cell in cells}
    snapshot = Snapshot(release.number, cells, texts)
    with _lock:
        _snapshots[state.token, release.number] = snapshot
        while len(_snapshots) > _KEPT:
            _snapshots.popitem(last=False)
    return snapshot
