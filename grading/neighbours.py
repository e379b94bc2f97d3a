"""Neighbour shapes (P13): shapes that no deck lists, one step beside those that it does.

A problem's ``neighbours.toml`` says which sizes its operation leaves free. No file, no neighbours. A deck promises its
own shapes only, so what comes of it is a note and never more; that is why the file is no part of a problem's version.

Source: docs/grader.md "Neighbour shapes".
"""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from grading.formulas import Number
from grading.tomldata import CatalogueError, load_table

NEIGHBOURS = "neighbours.toml"
_Shape = dict[str, Number]


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One size that may change.

    by        what is added to it, one neighbour each
    times     factors, one neighbour each; the product is cut to a multiple
    least     no neighbour is smaller; ``multiple``: every neighbour is one of it
    """

    name: str
    by: list[int] = []
    times: list[float] = []
    least: int = 1
    multiple: int = 1


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    moves: list[Move]


def load_moves(folder: Path, names: Sequence[str]) -> list[Move]:
    """Return the moves of the problem in a folder, none without a file.

    names  the sizes that the problem's shapes have
    Raises CatalogueError.
    """
    path = folder / NEIGHBOURS
    if not path.exists():
        return []
    moves = load_table(path, _File).moves
    for index, move in enumerate(moves):
        if move.name not in names:
            raise CatalogueError(f"{path}: moves[{index}].name is {move.name!r}; accepted are {', '.join(names)}")
        if move.least < 1 or move.multiple < 1 or any(step % move.multiple for step in move.by):
            raise CatalogueError(f"{path}: moves[{index}] needs least and multiple > 0, and steps that are multiples")
        if not (move.by or move.times) or any(not factor > 0 for factor in move.times):
            raise CatalogueError(f"{path}: moves[{index}] needs a step or a factor, and factors > 0")
    return moves


def find_neighbours(shapes: Sequence[_Shape], moves: Sequence[Move]) -> list[_Shape]:
    """Return every shape that is one move away from a listed one and is not listed itself, in order and once."""
    found: list[_Shape] = []
    for shape in shapes:
        for move in moves:
            for size in _sizes(shape[move.name], move):
                beside = shape | {move.name: size}
                if beside not in shapes and beside not in found:
                    found.append(beside)
    return found


def choose_neighbours(shapes: Sequence[_Shape], moves: Sequence[Move], count: int, seed: str) -> list[_Shape]:
    """Return as many neighbours as asked for, drawn by a seed that the candidate cannot know; fewer if there are."""
    found = find_neighbours(shapes, moves)
    return random.Random(seed).sample(found, min(count, len(found)))


def _sizes(size: Number, move: Move) -> list[int]:
    moved = [int(size) + step for step in move.by]
    moved += [int(size * factor) // move.multiple * move.multiple for factor in move.times]
    return [value for value in moved if value >= move.least and value % move.multiple == 0]
