"""CUDA kernels compiled for a processor, thread by thread: what `hopper.h` does."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

HEADER = Path(__file__).parent / "hopper.h"
COMPILER = shutil.which("g++")
_SHARED = re.compile(r"(extern )?__shared__ __align__\((\d+)\) (\w+) ([^;]+);")


def simulated(kernel: Path, entry: str, folder: Path) -> ctypes.CDLL:
    """Compile a kernel file's ``CUDA`` source with an entry in C for its host function, and load it.

    Raises ValueError where the source holds PTX outside a wrapper that the header replaces, CalledProcessError where
    it does not compile.
    """
    found = re.search(r'^CUDA = r"""(.*?)^"""', kernel.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{kernel.name} has no CUDA source")
    text = re.sub(r"^#(include|pragma|define DEVICE).*\n", "", found[1], flags=re.MULTILINE)
    for name in re.findall(r"^PRIMITIVE [\w ]*?(\w+)\(", HEADER.read_text(), re.MULTILINE):
        text = _without(text, name)
    if "asm" in re.findall(r"\w+", text):
        raise ValueError(f"{kernel.name} holds PTX that no primitive replaces: {text[text.index('asm') :][:120]}")
    source, library = folder / f"{kernel.stem}.cpp", folder / f"{kernel.stem}.so"
    source.write_text(f'#include "{HEADER}"\n{_with_shared_memory(text)}\n{entry}\n')
    command = [COMPILER or "g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


def _without(text: str, name: str) -> str:
    """Leave out a function's definition. No brace stands alone in a string or comment of one."""
    found = re.search(rf"^(template <[^>]*>\n)?[\w ]+ {name}\([^)]*(\([^)]*\)[^)]*)*\) *\{{", text, re.MULTILINE)
    if found is None:
        return text
    end, depth = found.end(), 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[: found.start()] + text[end:]


def _with_shared_memory(text: str) -> str:
    """Give the block's fixed arrays its first kilobyte, and the rest to what a launch asks for."""

    def place(found: re.Match[str]) -> str:
        if found[1]:
            return f"{found[3]}* {found[4].removesuffix('[]')} = gpu::shared_memory() + 1024;"
        names = re.findall(r"(\w+)\[(\w+)\]", found[4])
        lines, before = [], "0"
        for name, size in names:
            lines.append(f"{found[3]}* {name} = ({found[3]}*)gpu::shared_memory() + {before};")
            before += f" + {size}"
        return " ".join(lines)

    return _SHARED.sub(place, text)
