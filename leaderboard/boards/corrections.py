"""Corrections: the events of published cells that took something back or changed it."""

import datetime
from dataclasses import dataclass

from leaderboard.boards.cells import Cell
from leaderboard.boards.changes import list_changes

_WORDS = {
    "changed": "Score changed",
    "removed": "No longer in the release",
    "withdrawn": "Withdrawn by an approver",
    "withheld": "Withheld since its release",
}


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction. `cell` is as it reads today: without a score unless it still has one."""

    word: str
    source: str
    cell: Cell
    at: datetime.datetime


def list_corrections(at: datetime.datetime) -> list[Correction]:
    """Return the corrections of the last releases and of everything since, newest first."""
    return [
        Correction(_WORDS[event.kind], event.source, event.cell, event.at)
        for event in list_changes(at)
        if event.kind in _WORDS
    ]
