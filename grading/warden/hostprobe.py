"""What this host can and cannot prove, found by trying: a jail is run, libraries are loaded, nothing is assumed."""

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from time import monotonic

import msgspec

from grading.warden.process import Child, Program
from grading.worker.protocol import ProtocolError

_VMM_SUPPORTED, _POSIX_HANDLES = 102, 103
_ISOLATION = (
    ("mount", "a root of its own"),
    ("pid", "a process table of its own"),
    ("net", "no network"),
    ("ipc", "no shared System V memory"),
    ("uts", "a host name of its own"),
)


class Finding(msgspec.Struct, frozen=True):
    """One ability of the host: whether it is there, in a plain sentence, and what its lack means."""

    name: str
    is_there: bool
    sentence: str


def probe_host() -> Iterator[Finding]:
    """Yield what was found, in order of importance."""
    yield from probe_jail()
    yield _probe_runtime()
    yield from probe_gpu()
    yield from _probe_tools()
    cores = len(os.sched_getaffinity(0))
    enough = "warden, oracle and worker each have one" if cores >= 3 else "three are needed for a quiet clock"
    yield Finding("cores", cores >= 3, f"{cores} processor cores: {enough}")


def probe_jail() -> Iterator[Finding]:
    """Run an empty program in a jail and report what the jail could do."""
    child = Child(Program("probe", "builtins", (), 60999, []), [])
    try:
        child.receive(monotonic() + 20)
    except (EOFError, TimeoutError, ProtocolError):
        pass
    report = child.read_report()
    child.close()
    if not report:
        yield Finding("jail", False, "no jail could be started: no candidate may run here")
        return
    names = report["namespaces"]
    for name, meaning in _ISOLATION:
        lack = str(report["missing"].get(name, ""))
        sentence = f"candidates get {meaning}" if name in names else f"candidates do not get {meaning}: {lack}"
        yield Finding(f"namespace {name}", name in names, sentence)
    own = report["uid"] != 0 and "uid" not in report["missing"]
    yield Finding(
        "user", own, "candidates run as a user without rights" if own else "candidates keep the grader's user"
    )
    count = report.get("seccomp")
    refused = f"{count} system calls are refused to candidates" if count else "no system call filter"
    yield Finding("seccomp", count is not None, refused)
    groups = report["cgroup"]
    limits = f"limits by control group: {', '.join(groups)}" if groups else "no control groups: limits per process only"
    yield Finding("cgroup", bool(groups), limits)


def isolation_level(findings: list[Finding]) -> str:
    """Return A, B or C, as a grade on this host would."""
    there = {finding.name for finding in findings if finding.is_there}
    if {f"namespace {name}" for name, _ in _ISOLATION} | {"user", "seccomp"} <= there:
        return "A"
    return "B" if {"namespace mount", "namespace pid", "namespace net"} <= there else "C"


def _probe_runtime() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", False, "PyTorch is not installed: nothing can be graded")
    line = "import torch; print(torch.__version__, torch.version.cuda)"
    done = subprocess.run([sys.executable, "-I", "-B", "-c", line], capture_output=True, text=True, check=False)
    if done.returncode:
        return Finding("torch", False, f"PyTorch does not load: {done.stderr.strip().splitlines()[-1:]}")
    return Finding("torch", True, f"PyTorch {done.stdout.split()[0]}, CUDA {done.stdout.split()[1]}")


def probe_gpu() -> Iterator[Finding]:
    """Ask the driver for a GPU, for exported memory handles, and for NVML."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding(
            "gpu", False, "no CUDA driver: only --device cpu, which proves answers on small shapes and no time"
        )
        return
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        yield Finding("gpu", False, "the CUDA driver finds no GPU")
        return
    name = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(name, 128, 0)
    yield Finding("gpu", True, f"{count.value} GPU, the first is {name.value.decode()}")
    values = []
    for attribute in (_VMM_SUPPORTED, _POSIX_HANDLES):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        values.append(value.value == 1)
    meaning = "inputs can be mapped read-only in the worker" if all(values) else "inputs cannot be shared read-only"
    yield Finding("vmm", all(values), meaning)
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        yield Finding("nvml", True, "clocks, power, throttling and other processes can be read")
    except OSError:
        yield Finding("nvml", False, "clocks and other processes cannot be read: times stay unexplained")


def _probe_tools() -> Iterator[Finding]:
    for name, needed in (("gcc", "C++ extensions"), ("nvcc", "CUDA extensions")):
        found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
        yield Finding(name, found is not None, f"{needed} can{'' if found else 'not'} be built")
    known = importlib.util.find_spec("triton") is not None
    yield Finding("triton", known, "Triton kernels can be graded" if known else "Triton is not installed")
    machine = platform.machine()
    yield Finding("architecture", machine == "x86_64", f"{machine}: the call filter knows x86_64")
