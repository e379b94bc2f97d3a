"""What a worker of a host is told when it starts: where it works, for which GPU, and how it signs."""

from pathlib import Path

import msgspec

from grading.wire import Ability, HostKey


class LocalGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device of this host.

    device  as the grader names it: ``cuda:0``, ``cpu``
    key     of the board that its name proves
    """

    device: str
    uuid: str
    key: str
    name: str
    driver: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` found on this host, once for all its workers."""

    isolation: str
    findings: list[Ability]
    versions: dict[str, str]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's whole configuration; it arrives on standard input, where no other user can read the key.

    work          folder for caches and grades
    evidence_dir  shared with the web side, for large archives; empty = there is none
    grader        command that grades; gets the arguments of ``python -m grading.warden``
    """

    broker: str
    key: HostKey
    gpu: LocalGpu
    found: Found
    work: str
    evidence_dir: str
    grader: list[str]

    @property
    def folder(self) -> Path:
        """Return the worker's own folder."""
        return Path(self.work) / "".join(
            letter if letter.isalnum() or letter in "-_" else "_" for letter in self.gpu.uuid
        )
