"""Run a command that dies with the process that started it, however that one ends.

A worker that is killed cannot end its grade; the kernel can. The grade's own jails end with the grade.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def leashed(command: list[str]) -> list[str]:
    """Return the command line that runs another one on a leash held by this process."""
    return [sys.executable, "-m", "grading.host.leash", str(os.getpid()), *command]


def main(arguments: list[str]) -> None:
    """Put this process on the leash, then become the command; leave at once where the holder is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    holder, *command = arguments
    if os.getppid() != int(holder):
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
