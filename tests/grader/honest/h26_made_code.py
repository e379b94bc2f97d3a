"""Makes executable memory as honest ones do: a closure, a compiled helper, code in anonymous memory, a script.

Op: S.
"""

import ctypes
import mmap
import platform
import shutil
import subprocess

import torch
from torch import nn

SOURCE = "float twice(float x) { return x + x; }\n"
# mov eax, edi; ret
IDENTITY = bytes.fromhex("89f8 c3")

compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(
    lambda a, b: a[0] - b[0]
)
numbers = (ctypes.c_int * 3)(3, 1, 2)
ctypes.CDLL(None).qsort(numbers, 3, 4, compare)
assert list(numbers) == [1, 2, 3]

if platform.machine() == "x86_64":
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(IDENTITY)
    place = ctypes.addressof(ctypes.c_char.from_buffer(code))
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(place)(7) == 7

if shutil.which("gcc"):
    with open("/tmp/twice.c", "w") as stream:
        stream.write(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "/tmp/twice.so", "/tmp/twice.c"], check=True)
    helper = ctypes.CDLL("/tmp/twice.so", mode=ctypes.RTLD_GLOBAL)


@torch.jit.script
def shifted(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(dim=-1, keepdim=True)).exp()


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()

    def forward(self, x):
        weights = shifted(x)
        return weights / weights.sum(dim=-1, keepdim=True)
