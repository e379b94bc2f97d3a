"""The jail: starts one program in namespaces of its own, with a root of its own, as an unprivileged user.

``python -I -S -B -m grading.warden.jail SPEC_FD REPORT_FD`` with a JSON `JailSpec` behind the first descriptor. Three
processes: the outer one (the warden's child) waits and cleans up; the inner one is process 1 of the new pid namespace,
and when it ends the kernel ends everything inside; the third becomes the program. What the host cannot offer is written
to the report, never silently skipped. When the warden dies, the outer one gets SIGTERM and ends all.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

from grading.warden import kernel, seccomp

_NAMESPACES = {
    "pid": kernel.NEW_PID,
    "net": kernel.NEW_NET,
    "ipc": kernel.NEW_IPC,
    "uts": kernel.NEW_UTS,
}
_STAGES = ("/mnt", "/tmp", "/var/tmp")
_DEVICES = ("null", "zero", "full", "random", "urandom")
GROUPS, GROUP_PREFIX = "/sys/fs/cgroup", "proofline-"
Report = dict[str, Any]


def main(spec_descriptor: int, report_descriptor: int) -> int:
    """Run the jail of a spec; return the program's exit status, 128 + n for a signal."""
    with os.fdopen(spec_descriptor, "rb") as stream:
        spec = json.loads(stream.read())
    report: Report = {"namespaces": [], "missing": {}, "uid": os.getuid(), "cgroup": []}
    kernel.die_with_parent(signal.SIGTERM)
    groups = _enter_cgroups(spec, report)
    _leave_namespaces(report)
    inner = os.fork()
    if inner == 0:
        _run_inner(spec, report, report_descriptor)
    os.close(report_descriptor)
    _close_passed(spec)
    signal.signal(signal.SIGTERM, lambda *_: _end(inner))
    status = _wait(inner)
    _remove_cgroups(groups)
    return status


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _wait(child: int) -> int:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _close_passed(spec: dict[str, Any]) -> None:
    for descriptor in spec["descriptors"]:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _enter_cgroups(spec: dict[str, Any], report: Report) -> list[str]:
    """Enter groups with limits where the host lets us make them: version 2, else version 1 pids and memory."""
    limits, name = spec["limits"], f"{GROUP_PREFIX}{os.getpid()}"
    wanted = [
        (GROUPS, {"pids.max": limits["processes"], "memory.max": limits["memory_bytes"]}),
        (f"{GROUPS}/pids", {"pids.max": limits["processes"]}),
        (f"{GROUPS}/memory", {"memory.limit_in_bytes": limits["memory_bytes"]}),
    ]
    made: list[str] = []
    for parent, files in wanted:
        if parent == GROUPS and not os.path.exists(f"{parent}/cgroup.controllers"):
            continue
        path = f"{parent}/{name}"
        try:
            os.mkdir(path)
            made.append(path)
            for file, value in files.items():
                _write(f"{path}/{file}", str(value))
                report["cgroup"].append(file)
            _write(f"{path}/cgroup.procs", str(os.getpid()))
        except OSError as error:
            report["missing"].setdefault("cgroup", f"{parent}: {error.strerror}")
    if report["cgroup"]:
        report["missing"].pop("cgroup", None)
    return made


def _remove_cgroups(groups: list[str]) -> None:
    for path in groups:
        with contextlib.suppress(OSError):
            _write(f"{os.path.dirname(path)}/cgroup.procs", str(os.getpid()))
            os.rmdir(path)


def _leave_namespaces(report: Report) -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        try:
            kernel.unshare(kernel.NEW_USER)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"0 {uid} 1")
            _write("/proc/self/gid_map", f"0 {gid} 1")
            report["namespaces"].append("user")
        except OSError as error:
            report["missing"]["user"] = str(error)
    for name, flag in _NAMESPACES.items():
        _leave(name, flag, report)


def _leave(name: str, flag: int, report: Report) -> None:
    try:
        kernel.unshare(flag)
        report["namespaces"].append(name)
    except OSError as error:
        report["missing"][name] = str(error)


def _run_inner(spec: dict[str, Any], report: Report, report_descriptor: int) -> None:
    """Process 1 of the jail. Never returns."""
    status = 125
    try:
        kernel.die_with_parent(signal.SIGKILL)
        os.setsid()
        # Only here: a new root would else become the outer process's root too, and hide the groups it must remove.
        _leave("mount", kernel.NEW_MOUNT, report)
        _build_root(spec, report)
        program = os.fork()
        if program == 0:
            _become_program(spec, report, report_descriptor)
        os.close(report_descriptor)
        _close_passed(spec)
        status = _reap(program)
    except OSError as error:
        sys.stderr.write(f"jail: {error}\n")
    finally:
        os._exit(status)


def _reap(program: int) -> int:
    """Wait for the program, reaping whatever else ends; what still runs then ends with this process."""
    while True:
        pid, status = os.wait()
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _build_root(spec: dict[str, Any], report: Report) -> None:
    """Mount a small read-only root that holds what the spec names and nothing else of the host."""
    if "mount" not in report["namespaces"]:
        report["missing"]["root"] = "no mount namespace"
        return
    stage = choose_stage(spec["binds"])
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("root", stage, "tmpfs", kernel.NO_SUID, "mode=755,size=16m")
    _mount_scratch(spec, stage)
    for source in spec["binds"]:
        _bind(source, stage, report)
    for name in spec["empty"]:
        os.makedirs(stage + name, exist_ok=True)
    for name, text in spec["files"].items():
        _write_file(stage + name, text)
    _mount_folder(spec["bundle_at"], stage, spec["bundle"])
    _mount_special(spec, stage, report)
    kernel.enter_root(stage)
    kernel.mount("none", "/", None, kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID)
    report["root"] = "own"
    if "uts" in report["namespaces"]:
        socket.sethostname("jail")


def choose_stage(binds: list[str]) -> str:
    """Return a folder to build the root on that hides nothing which the root must show."""
    free = (path for path in _STAGES if os.path.isdir(path) and not any(b.startswith(f"{path}/") for b in binds))
    return next(free, _STAGES[0])


def _mount_scratch(spec: dict[str, Any], stage: str) -> None:
    """Mount the folders in memory. They come before the host's paths, one of which may lie under ``/tmp``."""
    for name, size in (("/tmp", spec["limits"]["scratch_bytes"]), ("/dev", 65536), ("/dev/shm", 1 << 28)):
        os.makedirs(stage + name, exist_ok=True)
        kernel.mount("scratch", stage + name, "tmpfs", kernel.NO_SUID, f"mode=1777,size={size}")


def _mount_special(spec: dict[str, Any], stage: str, report: Report) -> None:
    for device in (*_DEVICES, *spec["devices"]):
        with contextlib.suppress(OSError):
            _bind(f"/dev/{device}", stage, report, read_only=False)
    os.makedirs(stage + "/proc", exist_ok=True)
    try:
        if "pid" not in report["namespaces"]:
            raise OSError(0, "no pid namespace")
        kernel.mount("proc", stage + "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    except OSError as error:
        report["missing"]["proc"] = str(error)


def _bind(source: str, stage: str, report: Report, *, read_only: bool = True) -> None:
    """Show one path of the host at the same place; links are copied as links."""
    target = stage + source
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
    kernel.mount(source, target, None, kernel.BIND | kernel.RECURSIVE)
    if not read_only:
        return
    try:
        kept = kernel.mount_flags(target)
        kernel.mount("none", target, None, kernel.REMOUNT | kernel.BIND | kernel.READ_ONLY | kernel.NO_SUID | kept)
    except OSError as error:
        report["missing"].setdefault("read_only", str(error))


def _mount_folder(name: str, stage: str, files: dict[str, str]) -> None:
    """Mount a folder that holds the given files (hex) and cannot be written to."""
    if not name:
        return
    os.makedirs(stage + name, exist_ok=True)
    kernel.mount("bundle", stage + name, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=755,size=64m")
    for path, content in files.items():
        target = f"{stage}{name}/{path}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as stream:
            stream.write(bytes.fromhex(content))
    kernel.mount("none", stage + name, None, kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV)


def _become_program(spec: dict[str, Any], report: Report, report_descriptor: int) -> None:
    """Give up every right and start the program. Never returns."""
    try:
        limits = spec["limits"]
        os.setsid()
        os.chdir(spec["bundle_at"] or "/")
        if spec["cores"]:
            os.sched_setaffinity(0, spec["cores"])
        kernel.drop_capabilities()
        if os.getuid() == 0 and "user" not in report["namespaces"]:
            os.setgroups([])
            os.setresgid(spec["uid"], spec["uid"], spec["uid"])
            os.setresuid(spec["uid"], spec["uid"], spec["uid"])
        elif spec["uid"]:
            report["missing"]["uid"] = "not root: the program keeps the grader's user"
        report["uid"] = os.getuid()
        _limit("NPROC", limits["processes"])
        _limit("NOFILE", 4096)
        _limit("CORE", 0)
        _limit("FSIZE", limits["scratch_bytes"])
        if limits["address_bytes"]:
            _limit("AS", limits["address_bytes"])
        kernel.forbid_new_privileges()
        _filter_calls(report)
        with os.fdopen(report_descriptor, "w") as stream:
            json.dump(report, stream)
        for descriptor in spec["descriptors"]:
            os.set_inheritable(descriptor, True)
        os.execve(spec["command"][0], spec["command"], spec["environment"])
    except (OSError, ValueError) as error:
        sys.stderr.write(f"jail: {error}\n")
    finally:
        os._exit(126)


def _filter_calls(report: Report) -> None:
    program = seccomp.build_filter()
    try:
        if program is None:
            raise OSError(0, "not known on this architecture")
        kernel.install_filter(program)
        report["seccomp"] = len(seccomp.DENIED)
    except OSError as error:
        report["missing"]["seccomp"] = str(error)


def _limit(name: str, value: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    ceiling = resource.getrlimit(kind)[1]
    bound = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
    resource.setrlimit(kind, (bound, bound))


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _write_file(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _write(path, text)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
