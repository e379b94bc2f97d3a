"""Which devices this host offers, and what it can prove."""

import importlib.metadata
import platform
from collections.abc import Iterator

from grading.evidence import GRADER_VERSION
from grading.hardware import identify, load_gpus
from grading.host.place import Found, LocalGpu
from grading.tomldata import CatalogueError
from grading.warden.gpustate import Sampler, read_host
from grading.warden.hostprobe import isolation_level, probe_host
from grading.wire import Ability

_MOST_GPUS = 64


def find_gpus(host: str, device: str, key: str, slots: int) -> list[LocalGpu]:
    """Return the devices to grade on.

    device  ``cuda`` for every GPU, ``cuda:1`` for one, ``cpu`` for the processor
    key     of the board, where the device's name proves several or none; empty = by its name
    slots   how many grades a processor takes at once
    Raises CatalogueError where there is none, or its board is not clear.
    """
    if device == "cpu":
        return [
            LocalGpu(device="cpu", uuid=f"{host}-cpu-{slot}", key=key or "CPU", name="CPU", driver="")
            for slot in range(slots)
        ]
    names = [device] if ":" in device else [f"{device}:{index}" for index in range(_MOST_GPUS)]
    found = list(_read_gpus(names, key))
    if not found:
        raise CatalogueError(f"device is {device!r}, and the driver finds no such GPU; need cuda, cuda:N or cpu")
    return found


def _read_gpus(names: list[str], key: str) -> Iterator[LocalGpu]:
    for name in names:
        said = read_host(name)
        if not said:
            return
        yield LocalGpu(
            device=name,
            uuid=str(said["uuid"]),
            key=_key_of(str(said["name"]), key),
            name=str(said["name"]),
            driver=str(said["driver"]),
        )


def _key_of(name: str, key: str) -> str:
    proven = identify(name)
    if key and key in proven:
        return key
    if key or len(proven) != 1:
        known = ", ".join(proven or load_gpus())
        raise CatalogueError(f"the device is {name!r}, which is not clearly {key or 'one board'}; --gpu takes {known}")
    return proven[0]


def look_around() -> Found:
    """Return what `doctor` finds here, and which versions are installed."""
    findings = list(probe_host())
    versions = {"python": platform.python_version(), "kernel": platform.release(), "grader": GRADER_VERSION}
    for package in ("torch", "triton", "celery"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    abilities = [Ability(name=item.name, is_there=item.is_there, sentence=item.sentence) for item in findings]
    return Found(isolation=isolation_level(findings), findings=abilities, versions=versions)


def count_company(device: str) -> int:
    """Return how many processes compute on a device now, before this host starts its own; 0 on a processor."""
    sample = Sampler(device).sample()
    return len(sample.foreign) if sample is not None else 0
