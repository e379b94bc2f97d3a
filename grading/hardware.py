"""GPUs, their versioned peak tables, and which device name proves which GPU.

Peaks are dense (no sparsity): TFLOPS per dtype key, and memory bandwidth in GB/s (1e9 bytes). A table is never edited
once scores used it: a correction is a new version with its date and source.

Data: grading/catalogue/gpus.toml. Source of the figures: the vendor datasheets named there.
"""

import datetime
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from grading.tomldata import CatalogueError, load_table

_PATH = Path(__file__).parent / "catalogue" / "gpus.toml"


class PeakTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a GPU's peaks."""

    version: int
    since: datetime.date
    source: str
    tflops: dict[str, float]
    bandwidth_gbps: float | None = None
    link_gbps: float | None = None
    note: str = ""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One hardware target; its peak tables in order of version, the current one last."""

    key: str
    name: str
    sm: str
    device_names: list[str]
    peaks: list[PeakTable]
    memory_gb: float | None = None
    memory_kind: str = ""
    not_names: list[str] = []
    note: str = ""

    @property
    def current(self) -> PeakTable:
        """The peak table that scores use today."""
        return self.peaks[-1]

    def is_proven_by(self, device_name: str) -> bool:
        """Tell whether a device name, as the driver reports it, proves this GPU and no other part."""
        words = _words(device_name)
        if any(_words(refused) <= words for refused in self.not_names):
            return False
        return any(_words(accepted) <= words for accepted in self.device_names)


class _Gpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gpu: list[Gpu]


@cache
def load_gpus(path: Path = _PATH) -> dict[str, Gpu]:
    """Return all GPUs by key, in catalogue order.

    Raises CatalogueError for an unreadable file, a repeated key, or peak versions that do not rise from 1.
    """
    gpus: dict[str, Gpu] = {}
    for gpu in load_table(path, _Gpus).gpu:
        if gpu.key in gpus:
            raise CatalogueError(f"{path}: gpu key {gpu.key!r} is given twice")
        if [table.version for table in gpu.peaks] != list(range(1, len(gpu.peaks) + 1)) or not gpu.peaks:
            raise CatalogueError(f"{path}: peaks of {gpu.key} need versions 1, 2, … in order")
        gpus[gpu.key] = gpu
    return gpus


def identify(device_name: str) -> tuple[str, ...]:
    """Return the keys of all GPUs that a device name proves; empty when it proves none."""
    return tuple(gpu.key for gpu in load_gpus().values() if gpu.is_proven_by(device_name))


def peaks_digest(gpu: Gpu) -> str:
    """Return the SHA-256 hex digest of a GPU's current peak table."""
    return hashlib.sha256(msgspec.json.encode(gpu.current, order="deterministic")).hexdigest()


def peak_rate(table: PeakTable, regime: Literal["compute", "memory"], dtype: str) -> float | None:
    """Return the peak of a regime in TFLOPS (compute) or GB/s (memory), or None where the table has none."""
    return table.tflops.get(dtype) if regime == "compute" else table.bandwidth_gbps


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9-]+", text.lower()))
