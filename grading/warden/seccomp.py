"""A seccomp filter as bytes: the system calls that a candidate has no use for are refused.

``clone3`` answers "not implemented", so that the C library falls back to ``clone``, whose flags can be looked at.
Only x86-64 is known here; elsewhere `build_filter` returns None and the evidence says so.
"""

import errno
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURE, _X32_BIT = 0xC000003E, 0x40000000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_CLONE, _CLONE3 = 56, 435
_NEW_NAMESPACES = 0x7E020080
DENIED = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "process_madvise": 440,
    "pidfd_getfd": 438,
    "kcmp": 312,
    "perf_event_open": 298,
    "bpf": 321,
    "userfaultfd": 323,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "unshare": 272,
    "setns": 308,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsmount": 432,
    "mount_setattr": 442,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "init_module": 175,
    "finit_module": 313,
    "delete_module": 176,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "reboot": 169,
    "swapon": 167,
    "swapoff": 168,
    "acct": 163,
    "settimeofday": 164,
    "clock_settime": 227,
    "clock_adjtime": 305,
    "adjtimex": 159,
    "open_by_handle_at": 304,
    "quotactl": 179,
    "syslog": 103,
    "iopl": 172,
    "ioperm": 173,
    "personality": 135,
}


def build_filter() -> bytes | None:
    """Return the program as an array of ``struct sock_filter``, or None on an architecture that is not known."""
    if platform.machine() != "x86_64":
        return None
    refuse = _ERRNO | errno.EPERM
    program = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_JUMP_EQUAL, _ARCHITECTURE, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        _step(_JUMP_ABOVE, _X32_BIT, 0, 1),
        _step(_RETURN, refuse),
        _step(_JUMP_EQUAL, _CLONE3, 0, 1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number in DENIED.values():
        program += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, refuse)]
    program += [
        _step(_JUMP_EQUAL, _CLONE, 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        _step(_JUMP_SET, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, refuse),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
