"""GPUs: peaks by version with their sources, and the boards that each has."""

import datetime
from collections import Counter
from dataclasses import dataclass

from grading.hardware import Gpu, load_gpus
from grading.problem import Deck, load_decks
from leaderboard.boards.cells import Cell, latest_release, read_cells

DTYPES = ("fp4", "fp8", "fp6", "int8", "bf16", "fp16", "tf32", "fp32")


@dataclass(frozen=True, slots=True)
class GpuBoard:
    """One board of a GPU with its counts."""

    deck: Deck
    published: int
    withheld: int
    failed: int


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU. `peaks` has a row per quantity and a value per version of the table, oldest first."""

    gpu: Gpu
    boards: tuple[GpuBoard, ...]
    peaks: tuple[tuple[str, str, tuple[float | None, ...]], ...]

    @property
    def published(self) -> int:
        """The number of published cells on all boards."""
        return sum(board.published for board in self.boards)


def list_gpus(at: datetime.datetime) -> list[GpuView]:
    """Return every GPU of the catalogue; three queries."""
    by_gpu: dict[str, list[Cell]] = {}
    for cell in read_cells(latest_release(), at):
        by_gpu.setdefault(cell.gpu, []).append(cell)
    return [_view(gpu, by_gpu.get(gpu.key, [])) for gpu in load_gpus().values()]


def read_gpu(key: str, at: datetime.datetime) -> GpuView | None:
    """Return one GPU, or None where the catalogue has no such; three queries."""
    gpu = load_gpus().get(key)
    return _view(gpu, read_cells(latest_release(), at, gpu=key)) if gpu else None


def _view(gpu: Gpu, cells: list[Cell]) -> GpuView:
    boards = []
    for deck in load_decks().values():
        if gpu.key in deck.gpus:
            counts = Counter(cell.status for cell in cells if cell.deck == deck.id)
            boards.append(GpuBoard(deck, counts["published"], counts["withheld"], counts["failed"]))
    return GpuView(gpu, tuple(boards), _peaks(gpu))


def _peaks(gpu: Gpu) -> tuple[tuple[str, str, tuple[float | None, ...]], ...]:
    rows: list[tuple[str, str, tuple[float | None, ...]]] = [
        ("Memory bandwidth", "GB/s", tuple(table.bandwidth_gbps for table in gpu.peaks)),
        ("Link bandwidth", "GB/s", tuple(table.link_gbps for table in gpu.peaks)),
    ]
    for dtype in DTYPES:
        rows.append((f"{dtype} compute", "TFLOPS", tuple(table.tflops.get(dtype) for table in gpu.peaks)))
    return tuple(row for row in rows if any(value is not None for value in row[2]))
