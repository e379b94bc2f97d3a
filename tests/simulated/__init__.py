"""CUDA kernels compiled for a processor, thread by thread: what `hopper.h` does."""

import ctypes
import re
import shutil
import subprocess
from functools import partial
from itertools import count
from pathlib import Path

HEADER = Path(__file__).parent / "hopper.h"
COMPILER = shutil.which("g++")
_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];")
_CLUSTER = re.compile(r"(>\n)?__global__ void __cluster_dims__\((\d+), 1, 1\) (?:__launch_bounds__\([^)]*\)\s+)?(\w+)")
_VARIABLES = re.compile(r"__shared__ (?:__align__\(\d+\) )?(\w+) ([^;]+);")
_LAUNCH = re.compile(r"(\w+)(<[^<>]*>)?<<<(.+?), (.+?), (.+?), \w+>>>\(([^;]*?)\);")
_NOTHING = re.compile(r'asm volatile\("(?:setmaxnreg\.[^"]*|griddepcontrol\.launch_dependents;)"\);')
_OPERAND, _RESULT = r'"r"\(([^";]+?)\)', r'"[=+][rf]"\(([^"]+?)\)'
_FOUR = ", ".join([_RESULT] * 4)
_WITH_RESULTS = {
    rf'"mapa\.shared::cluster\.u32 %0, %1, %2;" : {_RESULT} : {_OPERAND}, {_OPERAND}': r"\1 = map_shared(\2, \3)",
    rf'"ld\.shared::cluster\.v4\.f32 \{{%0, %1, %2, %3\}}, \[%4\];"\s*: {_FOUR} : {_OPERAND}': (
        r"load_remote(\1, \2, \3, \4, \5)"
    ),
    rf'"ld\.shared::cluster\.v2\.f32 \{{%0, %1\}}, \[%2\];" : {_RESULT}, {_RESULT}\s*: {_OPERAND}': (
        r"load_remote(\1, \2, \3)"
    ),
    rf'"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \{{%0, %1, %2, %3\}}, \[%4\];"\s*: {_FOUR} : {_OPERAND}': (
        r"load_matrices(\1, \2, \3, \4, \5)"
    ),
    rf'"mma\.sync\.aligned\.m16n8k16\.[^"]*"\s*"[^"]*"\s*: {_FOUR}\s*: {", ".join([_OPERAND] * 6)}': (
        r"multiply(\1, \2, \3, \4, \5, \6, \7, \8, \9, \10)"
    ),
}
# PTX that stands in a kernel's text without a wrapper, and the primitive that does the same.
_STATEMENTS = {
    r"barrier\.cluster\.arrive\.aligned;": "cluster_arrive",
    r"barrier\.cluster\.wait\.aligned;": "cluster_wait",
    r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], 16;": "copy_16",
    r"cp\.async\.commit_group;": "copies_end",
    r"cp\.async\.wait_group 0;": "await_copies",
    r"bar\.sync %0, 128;": "meet_128",
    r"bar\.sync 1, 384;": "meet_384",
    r"stmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 \[%0\], \{%1, %2, %3, %4\};": "store_transposed",
    r"griddepcontrol\.wait;": "await_previous",
    r"fence\.mbarrier_init\.release\.cluster;": "barriers_ready",
    r"fence\.proxy\.async;": "fence_async",
    r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%0\], %1;": "barrier_expect",
}


def simulated(kernel: Path, entry: str, folder: Path) -> ctypes.CDLL:
    """Compile a kernel file's ``CUDA`` source with an entry in C for its host function, and load it.

    Raises ValueError where the source holds PTX that nothing replaces, or does not compile.
    """
    found = re.search(r'^CUDA = r"""(.*?)^"""', kernel.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{kernel.name} has no CUDA source")
    text = re.sub(r"^#(include|pragma|define DEVICE).*\n", "", found[1], flags=re.MULTILINE)
    for name in re.findall(r"^PRIMITIVE [\w ]*?(\w+)\(", HEADER.read_text(), re.MULTILINE):
        text = _without(text, name)
    for statement, name in _STATEMENTS.items():
        text = re.sub(
            rf'asm volatile\("{statement}"\s*::(.*?): "memory"\);', partial(_call, name), text, flags=re.DOTALL
        )
    for statement, call in _WITH_RESULTS.items():
        text = re.sub(rf'asm(?: volatile)?\({statement}(?: : "memory")?\);', rf"{call};", text)
    text = _NOTHING.sub("", text).replace("WGMMA_CODE\n", "")
    if "asm" in re.findall(r"\w+", text):
        raise ValueError(f"{kernel.name} holds PTX that no primitive replaces: {text[text.index('asm') :][:120]}")
    source, library = folder / f"{kernel.stem}.cpp", folder / f"{kernel.stem}.so"
    source.write_text(f'#include "{HEADER}"\n{_in_plain_words(text)}\n{entry}\n')
    command = [COMPILER or "g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(library), str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{kernel.name} does not compile: {done.stderr[:2000]}")
    return ctypes.CDLL(str(library))


def _call(name: str, statement: re.Match[str]) -> str:
    """Write a statement of PTX as a call with its operands."""
    operands = re.sub(r"""(^|, )"[rl]"\(""", r"\1(", statement[1].strip())
    return f"{name}({operands});"


def _without(text: str, name: str) -> str:
    """Leave out a function's definition. No brace stands alone in a string or comment of one."""
    found = re.search(rf"^(template <[^>]*>\s+)?[\w ]+ {name}\([^)]*(\([^)]*\)[^)]*)*\) *\{{", text, re.MULTILINE)
    if found is None:
        return text
    end, depth = found.end(), 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[: found.start()] + text[end:]


def _in_plain_words(text: str) -> str:
    """Write what only CUDA's language has as calls: variables in shared memory, and launches."""
    numbers = count()

    def declare(found: re.Match[str]) -> str:
        lines = []
        for name, sizes in re.findall(r"(\w+)((?:\[\w+\])*)(?:, |$)", found[2]):
            lines.append(f"auto& {name} = gpu::variable<{found[1]}{sizes}>({next(numbers)});")
        return " ".join(lines)

    text = _DYNAMIC.sub(r"\1* \2 = (\1*)gpu::dynamic_memory();", text)
    text = _VARIABLES.sub(declare, text)
    known = _CLUSTER.findall(text)
    clusters = {name: size for _, size, name in known}
    text += "".join(
        f"static int cluster_of_{name} = gpu::clusters[(void*){name}] = {size};\n"
        for is_template, size, name in known
        if not is_template
    )

    def launch(found: re.Match[str]) -> str:
        name, types, grid, block, size, arguments = found.groups()
        return (
            f"gpu::run({grid}, {block}, {size}, {clusters.get(name, 1)}, [=] {{ {name}{types or ''}({arguments}); }});"
        )

    return _LAUNCH.sub(launch, text)
