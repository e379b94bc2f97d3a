"""Rewrites the machine code of the C library's clock in its own memory, so that time runs at an eighth of its speed.

Op: S. Expect: integrity by P12.mapped_code.
"""

import ctypes
import platform

from torch import nn

PAGE = 4096
READ, WRITE, EXECUTE = 1, 2, 4
# mov eax, 228 (clock_gettime); syscall; shr [rsi], 3; shr [rsi + 8], 3; ret
SLOW_CLOCK = bytes.fromhex("b8e4000000 0f05 48c12e03 48c16e0803 c3")

library = ctypes.CDLL(None)
if platform.machine() == "x86_64":
    clock = ctypes.cast(library.clock_gettime, ctypes.c_void_p).value
    start = ctypes.c_void_p(clock // PAGE * PAGE)
    library.mprotect(start, 2 * PAGE, READ | WRITE | EXECUTE)
    ctypes.memmove(clock, SLOW_CLOCK, len(SLOW_CLOCK))
    library.mprotect(start, 2 * PAGE, READ | EXECUTE)


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        return x.softmax(dim=-1)
