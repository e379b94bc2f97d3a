"""The few system calls of the jail that Python 3.11 has no function for."""

import ctypes
import os
import struct

NEW_USER, NEW_PID, NEW_NET, NEW_IPC, NEW_UTS, NEW_MOUNT = (
    0x10000000,
    0x20000000,
    0x40000000,
    0x08000000,
    0x04000000,
    0x00020000,
)
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH = 2
_NO_ACCESS_TIME, _NO_DIRECTORY_TIME, _RELATIVE_TIME, _STATVFS_RELATIVE = 1024, 2048, 1 << 21, 4096
_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES, _DROP_BOUNDING, _SET_SECUREBITS, _SET_SECCOMP = 1, 38, 24, 28, 22
_SECCOMP_FILTER = 2
# No root, and three locks: on that, on the fix-up of capabilities at setuid, on keeping them.
_NO_ROOT_LOCKED = 0b101011
_LAST_CAPABILITY = 63
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces. Raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system. Raises OSError naming the target."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {target}")


def mount_flags(target: str) -> int:
    """Return the flags that a mount already has and that a remount in a user namespace must keep."""
    found = os.statvfs(target).f_flag
    kept = found & (NO_SUID | NO_DEV | NO_EXEC | _NO_ACCESS_TIME | _NO_DIRECTORY_TIME)
    return kept | (_RELATIVE_TIME if found & _STATVFS_RELATIVE else 0)


def enter_root(root: str) -> None:
    """Make a mounted directory the root and let go of the old one. Raises OSError."""
    old = os.path.join(root, ".old")
    os.mkdir(old)
    _check(_libc.pivot_root(root.encode(), old.encode()), "pivot_root")
    os.chdir("/")
    _check(_libc.umount2(b"/.old", DETACH), "umount /.old")
    os.rmdir("/.old")


def die_with_parent(number: int) -> None:
    """Ask the kernel for a signal when the parent ends."""
    _check(_libc.prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0), "prctl")


def drop_capabilities() -> None:
    """Make it impossible to regain any capability, and keep programs from gaining privileges."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) != 0:
            break
    _libc.prctl(_SET_SECUREBITS, _NO_ROOT_LOCKED, 0, 0, 0)


def forbid_new_privileges() -> None:
    """Set no-new-privileges. Raises OSError."""
    _check(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def install_filter(program: bytes) -> None:
    """Install a seccomp program in this process. Raises OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, header, 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
