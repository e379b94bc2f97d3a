"""P12 from outside: what the warden sees of a process that rewrites its own code, and what it leaves alone.

The processes are real; each stands where a jail's program does, two generations below the one that is watched.
"""

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from grading.evidence import CodeLook
from grading.verdict import judge
from grading.verdict_code import judge_code
from grading.warden.mappedcode import CodeWatch
from tests.grader.made import make_evidence, make_pass

BINDS = ["/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix]
PROGRAM = """
import ctypes, math, mmap, sys

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
library = ctypes.CDLL("libresolv.so.2")

def find(name):
    for line in open("/proc/self/maps"):
        if name in line and "r-xp" in line:
            return tuple(int(text, 16) for text in line.split()[0].split("-"))

def open_up(start, rights=7):
    return libc.mprotect(ctypes.c_void_p(start // 4096 * 4096), 4096, rights)

print("ready", flush=True)
for line in sys.stdin:
    answer = "done"
    exec(line)
    print(answer, flush=True)
"""
ALTER = (
    "a = find('libc.so.6')[1] - 8; open_up(a); old = ctypes.string_at(a, 8); ctypes.memset(a, 0x90, 8); open_up(a, 5)"
)
PUT_BACK = "open_up(a); ctypes.memmove(a, old, 8); open_up(a, 5)"
REPLACE = (
    "s, e = find('libm.so.6'); old = ctypes.string_at(e - 4096, 4096); "
    "libc.mmap(e - 4096, 4096, 7, 0x32, -1, 0); ctypes.memmove(e - 4096, old, 4096); open_up(e - 4096, 5)"
)
SHIFT = "s, e = find('libm.so.6'); f = open(math.__file__); libc.mmap(e - 4096, 4096, 5, 0x12, f.fileno(), 0)"
KERNEL = (
    "e = find('[vdso]')[1]; answer = 'sealed' if open_up(e - 1) else 'done'; "
    "answer == 'sealed' or ctypes.memset(e - 1, 0x90, 1)"
)
CLOSE = "import _ctypes; _ctypes.dlclose(library._handle)"
CLOSURE = "keep = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1); assert keep() == 1"
ANONYMOUS = "code = mmap.mmap(-1, 4096, prot=7); code.write(b'\\xc3')"


class Watched:
    """A process that runs lines, and the watch that looks at it."""

    def __init__(self) -> None:
        inner = f"'{sys.executable}' -I -c \"$PROGRAM\"; true"
        command = ["sh", "-c", 'sh -c "$INNER"; true']
        self.outer = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"INNER": inner, "PROGRAM": PROGRAM, "PATH": "/usr/bin:/bin"},
        )
        assert self.outer.stdout is not None
        assert self.outer.stdout.readline() == "ready\n"
        self.watch = CodeWatch(self.outer.pid, BINDS)
        self.first = self.watch.look("rehearse")

    def run(self, line: str) -> CodeLook:
        """Let the process run a line; return what the next look sees."""
        assert self.outer.stdin is not None and self.outer.stdout is not None
        self.outer.stdin.write(f"{line}\n")
        self.outer.stdin.flush()
        answer = self.outer.stdout.readline()
        if answer == "sealed\n":
            pytest.skip("this kernel lets nobody write to its own code")
        assert answer == "done\n"
        return self.watch.look("build")

    def end(self) -> None:
        self.outer.communicate()


@pytest.fixture
def watched() -> Iterator[Watched]:
    running = Watched()
    if running.first.unread is not None:
        running.end()
        pytest.skip(f"this host does not let the warden look: {running.first.unread}")
    yield running
    running.end()


def rules(*looks: CodeLook) -> set[str]:
    return {item.rule for item in judge_code(looks)}


def test_nothing_is_seen_where_nothing_was_changed(watched: Watched) -> None:
    look = watched.run("1 + 1")
    assert look.files is not None and look.files >= 4
    assert look.text_bytes is not None and look.text_bytes > 1 << 20
    assert (look.notes, rules(watched.first, look)) == ([], set())


def test_altered_text_is_seen_and_so_is_that_it_was_put_back(watched: Watched) -> None:
    altered = watched.run(ALTER)
    assert len(altered.altered) == 1
    assert altered.altered[0].startswith("libc.so.6+0x")
    assert rules(altered) == {"P12.mapped_code"}
    restored = watched.run(PUT_BACK)
    assert (restored.altered, len(restored.restored)) == ([], 1)
    assert rules(restored) == {"P12.restored_code"}


@pytest.mark.parametrize("line", [REPLACE, SHIFT], ids=["by memory of no file", "by another file"])
def test_text_that_another_mapping_took_the_place_of_is_seen(line: str, watched: Watched) -> None:
    look = watched.run(line)
    assert [item.partition(":")[0] for item in look.replaced] == ["libm.so.6"]
    assert rules(look) == {"P12.mapped_code"}


def test_a_patch_of_the_kernels_own_code_is_seen(watched: Watched) -> None:
    look = watched.run(KERNEL)
    assert look.altered == ["[vdso]: differs from this process's"]


def test_a_patched_copy_of_the_process_is_seen_too(watched: Watched) -> None:
    patched = f"{ALTER}; os.write(told, b'x'); time.sleep(9)"
    begin = f"import os, time; hears, told = os.pipe(); child = os.fork(); child or exec({patched!r})"
    look = watched.run(f"{begin}; os.read(hears, 1)")
    assert len(look.altered) == 1
    assert look.altered[0].startswith("libc.so.6+0x")
    assert "in process" in look.altered[0]
    assert rules(watched.run("os.kill(child, 9); os.waitpid(child, 0)")) == set()


def test_another_program_in_the_jail_raises_nothing(watched: Watched) -> None:
    program = "import math, sys, time; print(1, flush=True); time.sleep(9)"
    start = f"import subprocess; other = subprocess.Popen([sys.executable, '-c', {program!r}], stdout=subprocess.PIPE)"
    look = watched.run(f"{start}; other.stdout.readline()")
    assert rules(watched.first, look, watched.run("other.kill()")) == set()


def test_a_program_that_put_another_in_its_place_is_seen(watched: Watched) -> None:
    program = "print('done', flush=True); import sys; sys.stdin.read()"
    look = watched.run(f"import os; os.execv(sys.executable, [sys.executable, '-c', {program!r}])")
    assert any(item.startswith("libc.so.6") for item in look.replaced)
    assert rules(look) == {"P12.mapped_code"}


def test_a_process_that_hides_after_the_import_opens_an_audit() -> None:
    looks = [CodeLook(at="rehearse", seconds=0.01), CodeLook(at="build", seconds=0.01, unread="permission denied")]
    assert [(item.rule, item.word) for item in judge_code(looks)] == [("P12.hidden_code", "needs_audit")]
    assert rules(looks[1]) == set()


def test_what_was_changed_before_the_first_look_accuses_nobody(watched: Watched) -> None:
    watched.run(ALTER)
    later = CodeWatch(watched.outer.pid, BINDS)
    assert rules(later.look("rehearse")) == set()
    look = later.look("build")
    assert rules(look) == set()
    assert look.notes == ["1 pages had been written to before the bundle was imported"]


@pytest.mark.parametrize("line", [CLOSE, CLOSURE, ANONYMOUS], ids=["unloaded library", "closure", "made code"])
def test_what_honest_programs_do_raises_nothing(line: str, watched: Watched) -> None:
    assert rules(watched.run(line)) == set()


def test_code_in_memory_of_no_file_is_a_note(watched: Watched) -> None:
    assert watched.run(ANONYMOUS).notes == ["writable and executable: zero (deleted), 4 KiB"]


def test_a_process_that_cannot_be_looked_at_is_said_so_and_nothing_is_claimed() -> None:
    look = CodeWatch(1 << 22, BINDS).look("build")
    assert look.unread is not None
    assert (look.files, rules(look)) == (None, set())


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_altered_code_in_one_pass_opens_an_audit_and_in_two_accuses(device: str) -> None:
    seen = [CodeLook(at="build", seconds=0.01, altered=["libc.so.6+0x10: 4 bytes"])]
    clean = [CodeLook(at="build", seconds=0.01)]
    grades = [
        make_evidence(make_pass(1, mapped_code=seen), make_pass(2, mapped_code=second)) for second in (clean, seen)
    ]
    once, twice = (judge(msgspec.structs.replace(grade, device=device)) for grade in grades)
    assert (once.word, once.rules()) == ("needs_audit", {"P12.mapped_code"})
    assert (twice.word, twice.rules()) == ("integrity", {"P12.mapped_code"})
