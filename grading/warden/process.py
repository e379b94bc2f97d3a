"""Processes of a grade: their jail's spec, their opaque output, and their certain end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from grading.card import find_card
from grading.warden.jail import GROUP_PREFIX, GROUPS
from grading.worker.protocol import MAX_FRAME_BYTES, Channel

ROOT = Path(__file__).parents[2]
KEPT_OUTPUT_BYTES = 256 * 1024
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_GROUP_SECONDS = 3.0
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/sys")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_GPU_PATHS = ("/opt", "/run/nvidia", "/etc/nvidia", "/usr/local/nvidia")
_USERS = "root:x:0:0::/:/bin/false\ngrader:x:{uid}:{uid}::/tmp:/bin/false\n"


@dataclass(frozen=True)
class Limits:
    """What a program may use; ``address_bytes`` 0 leaves the address space alone, as CUDA needs it."""

    processes: int = 256
    memory_bytes: int = 16 << 30
    address_bytes: int = 24 << 30
    scratch_bytes: int = 1 << 30


LIMITS = Limits()
GPU_LIMITS = Limits(processes=1024, memory_bytes=96 << 30, address_bytes=0, scratch_bytes=8 << 30)


def limits_on(device: str) -> Limits:
    """Return what a program may use on a device where nobody asked for something else."""
    return LIMITS if device == "cpu" else GPU_LIMITS


@dataclass(frozen=True)
class Program:
    """A Python program for the jail.

    entry        module with a ``main`` that takes the arguments
    shown        paths of the checkout that it can see and import from
    bundle_at    where the bundle's folder is mounted; it is the working folder, and no folder of the import path: a
                 helper named like a library's module must not be loaded in its place before the bundle is imported
    """

    name: str
    entry: str
    arguments: Sequence[object]
    uid: int
    shown: Sequence[Path]
    bundle_at: str = ""
    bundle: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = LIMITS
    device: str = "cpu"
    cores: Sequence[int] = ()


def remove_groups() -> None:
    """Remove control groups of jails whose outer process is gone: it removes its own unless it was killed."""
    for path in (*Path(GROUPS).glob(f"{GROUP_PREFIX}*"), *Path(GROUPS).glob(f"*/{GROUP_PREFIX}*")):
        if not Path("/proc", path.name.removeprefix(GROUP_PREFIX)).exists():
            with contextlib.suppress(OSError):
                path.rmdir()


class OutputTooLong(Exception):
    """A process wrote more than it may."""


class Child:
    """A program in its jail. `close` ends it and everything that it started; it can be called at any time."""

    def __init__(self, program: Program, descriptors: Sequence[int], frame_limit: int = MAX_FRAME_BYTES) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = Channel(ours, frame_limit)
        self.output = bytearray()
        self.output_bytes = 0
        self.report: dict[str, Any] = {}
        passed = [theirs.fileno(), *descriptors]
        jail = _jail_spec(program, passed)
        self.binds: list[str] = jail["binds"]
        spec = _memory_file(json.dumps(jail).encode())
        report, report_in = os.pipe()
        command = [sys.executable, "-I", "-S", "-B", "-c", _JAIL_LINE.format(root=str(ROOT)), str(spec), str(report_in)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[*passed, spec, report_in],
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        for descriptor in (spec, report_in):
            os.close(descriptor)
        theirs.close()
        self.name = program.name
        self._report = report
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the pid of the jail's outer process."""
        return self._process.pid

    def read_report(self) -> dict[str, Any]:
        """Return what the jail could and could not do; empty when it never came that far."""
        if self._report >= 0:
            with os.fdopen(self._report, "rb") as stream:
                data = stream.read()
            self._report = -1
            self.report = json.loads(data) if data else {}
        return self.report

    def receive(self, deadline: float) -> dict[str, Any]:
        """Return the next message. Raises what `Channel.receive` raises, and OutputTooLong."""
        while True:
            if self.output_bytes > MAX_OUTPUT_BYTES:
                raise OutputTooLong(f"{self.name} wrote more than {MAX_OUTPUT_BYTES} bytes")
            try:
                return self.channel.receive(min(deadline, monotonic() + 0.25))
            except TimeoutError:
                if monotonic() > deadline:
                    raise

    def exit_code(self, seconds: float) -> int | None:
        """Return the exit status once the program has ended, None when it has not in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End the program and everything in its jail; return when all of it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        self._remove_groups()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self.channel.close()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1

    def _remove_groups(self) -> None:
        """Remove this jail's control groups, once the last process in them is gone."""
        until = monotonic() + _GROUP_SECONDS
        remove_groups()
        while any(Path(GROUPS).glob(f"*/{GROUP_PREFIX}{self.pid}")) and monotonic() < until:
            sleep(0.05)
            remove_groups()

    def _drain(self) -> None:
        stream = self._process.stdout
        while stream is not None and (data := stream.read1(65536)):  # type: ignore[attr-defined]
            self.output_bytes += len(data)
            if len(self.output) < KEPT_OUTPUT_BYTES:
                self.output += data[: KEPT_OUTPUT_BYTES - len(self.output)]


_JAIL_LINE = "import sys; sys.path.insert(0, {root!r}); from grading.warden import jail; sys.exit(jail.main(int(sys.argv[1]), int(sys.argv[2])))"  # noqa: E501
_PROGRAM_LINE = "import sys; sys.path[:0] = {paths!r}; from {entry} import main; main(*{arguments!r})"


def _jail_spec(program: Program, passed: Sequence[int]) -> dict[str, Any]:
    is_gpu = program.device != "cpu"
    libraries = [path for path in sys.path if path.startswith("/") and _is_library(Path(path))]
    fixed = [*_SYSTEM, *_SETTINGS, *(_GPU_PATHS if is_gpu else ()), sys.base_prefix, sys.prefix, *libraries]
    shown = [str(path) for path in program.shown]
    binds = _outermost([path for path in [*fixed, *shown] if os.path.lexists(path)])
    site = [path for path in libraries if path.endswith(("site-packages", "dist-packages")) or is_gpu]
    paths = [str(ROOT), *site]
    line = _PROGRAM_LINE.format(paths=paths, entry=program.entry, arguments=(passed[0], *program.arguments))
    limits = program.limits
    return {
        "command": [sys.executable, "-I", "-B", "-u", "-c", line],
        "environment": environment_of(program),
        "binds": binds,
        "empty": [program.bundle_at] if program.bundle_at else [],
        "files": {"/etc/passwd": _USERS.format(uid=program.uid), "/etc/group": f"grader:x:{program.uid}:\n"},
        "bundle_at": program.bundle_at,
        "bundle": {name: data.hex() for name, data in program.bundle.items()},
        "devices": _gpu_files(program.device),
        "descriptors": list(passed),
        "uid": program.uid,
        "cores": list(program.cores),
        "limits": {
            "processes": limits.processes,
            "memory_bytes": limits.memory_bytes,
            "address_bytes": 0 if is_gpu else limits.address_bytes,
            "scratch_bytes": limits.scratch_bytes,
        },
    }


def _is_library(path: Path) -> bool:
    """Tell whether a folder of the import path may be shown: nothing of the checkout but its virtual environment."""
    return path.is_dir() and (path.is_relative_to(sys.prefix) or not path.is_relative_to(ROOT))


def environment_of(program: Program) -> dict[str, str]:
    """Return the allow-list: the same for every phase, and nothing of the grader's own environment but tool paths."""
    fixed = {
        # The interpreter's own folder comes first: that is where a virtual environment keeps ninja.
        "PATH": f"{Path(sys.executable).parent}:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "USER": "grader",
        "LOGNAME": "grader",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": "/tmp/triton",
        "TORCH_EXTENSIONS_DIR": "/tmp/extensions",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
    }
    if program.device == "cpu":
        return fixed | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} | dict(program.environment)
    kept = {name: os.environ[name] for name in ("CUDA_HOME", "LD_LIBRARY_PATH") if name in os.environ}
    card = find_card(program.device)
    return fixed | kept | (card.environment if card else {}) | dict(program.environment)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Return the paths without those that lie inside another, links left as they are."""
    chosen: list[str] = []
    for path in sorted(set(paths), key=lambda path: (path.count("/"), path)):
        inside = any(path.startswith(outer.rstrip("/") + "/") for outer in chosen if not os.path.islink(outer))
        if not inside and path != "/":
            chosen.append(path)
    return chosen


def _gpu_files(device: str) -> list[str]:
    """Return the device files of one card; none for a processor."""
    card = find_card(device)
    names = [name for name in os.listdir("/dev") if name.startswith("nvidia") and not Path("/dev", name).is_dir()]
    return card.device_files(names) if card else []


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("spec")
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        stream.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
