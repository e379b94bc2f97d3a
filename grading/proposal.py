"""Proposed changes of severities and peak tables, put in force for a while to see what they would alter.

A proposal is a TOML file: ``[severity.<deck>]`` with entries as in ``deck.toml``, and ``[[peaks]]`` with ``gpu`` and
the fields of a peak table, which becomes the newest version of that GPU's.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from grading import yardstick
from grading.hardware import Gpu, PeakTable, load_gpus
from grading.integrity import RULES
from grading.problem import Deck, SeverityOverride, load_decks
from grading.tomldata import CatalogueError, load_table


class ProposedPeaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peak table that would become the newest of a GPU's."""

    gpu: str
    since: datetime.date
    source: str
    tflops: dict[str, float]
    bandwidth_gbps: float | None = None
    link_gbps: float | None = None
    note: str = ""


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Severities by deck and code, and peak tables."""

    severity: dict[str, dict[str, SeverityOverride]] = {}
    peaks: list[ProposedPeaks] = []


def read_proposal(path: Path) -> Proposal:
    """Return a proposal. Raises CatalogueError naming the first deck, code or GPU that does not exist."""
    proposal = load_table(path, Proposal)
    for deck, entries in proposal.severity.items():
        if deck not in load_decks():
            raise CatalogueError(f"{path}: severity names deck {deck!r}; accepted are {', '.join(load_decks())}")
        unknown = sorted(set(entries) - set(RULES))
        if unknown:
            raise CatalogueError(f"{path}: severity.{deck} names {unknown[0]!r}, which is no rule")
    for peaks in proposal.peaks:
        if peaks.gpu not in load_gpus():
            raise CatalogueError(f"{path}: peaks name gpu {peaks.gpu!r}; accepted are {', '.join(load_gpus())}")
    return proposal


@contextmanager
def in_force(proposal: Proposal) -> Iterator[None]:
    """Put a proposal in force in this process, and take it back afterwards."""
    decks, gpus = load_decks(), load_gpus()
    old_decks, old_gpus = dict(decks), dict(gpus)
    try:
        decks.update({name: _with_severity(decks[name], entries) for name, entries in proposal.severity.items()})
        for peaks in proposal.peaks:
            gpus[peaks.gpu] = _with_peaks(gpus[peaks.gpu], peaks)
        yield
    finally:
        decks.update(old_decks)
        gpus.update(old_gpus)
        yardstick.forget()


def _with_severity(deck: Deck, entries: dict[str, SeverityOverride]) -> Deck:
    return msgspec.structs.replace(deck, severity={**deck.severity, **entries})


def _with_peaks(gpu: Gpu, peaks: ProposedPeaks) -> Gpu:
    table = PeakTable(
        version=gpu.current.version + 1,
        since=peaks.since,
        source=peaks.source,
        tflops=peaks.tflops,
        bandwidth_gbps=peaks.bandwidth_gbps,
        link_gbps=peaks.link_gbps,
        note=peaks.note,
    )
    return msgspec.structs.replace(gpu, peaks=[*gpu.peaks, table])
