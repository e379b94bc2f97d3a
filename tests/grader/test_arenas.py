"""Arenas on a processor: what the oracle writes is what the worker sees, and beside it there is nothing to see."""

import ctypes
import gc
import mmap
import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="arenas are tensors")

from grading.oracle.arenas import OracleArena  # noqa: E402
from grading.worker.guarded import ALIGNMENT, GUARD_BYTES, place_of  # noqa: E402
from grading.worker.memory import Arena  # noqa: E402


def make_pair(*sizes: int, dtype=torch.bfloat16, writable: bool = False):
    """Return both sides' tensors over one arena; the worker's arena is kept by its tensor alone."""
    oracle = OracleArena(torch.zeros(sizes, dtype=dtype), "cpu", writable=writable)
    worker = Arena(os.dup(oracle.descriptor), oracle.describe(), "cpu", writable=writable)
    oracle.close_descriptor()
    return oracle, worker.tensor()


def signal_of(touch) -> int:
    """Return the signal that ends a process which does something, 0 for none."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        try:
            touch()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return status & 0x7F


@pytest.mark.parametrize("sizes", [(32, 64), (1, 1), (7, 13), (1000, 1000), ()])
def test_both_sides_see_the_same_bytes_at_an_aligned_place(sizes: tuple[int, ...]) -> None:
    oracle, tensor = make_pair(*sizes)
    content = torch.randn(sizes).bfloat16()
    oracle.hold_back(content)
    assert not torch.equal(tensor, content) or not sizes
    oracle.complete(content)
    assert torch.equal(tensor, content)
    assert tensor.data_ptr() % ALIGNMENT == 0


def test_the_first_element_past_the_end_faults() -> None:
    _, tensor = make_pair(32, 64)
    end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    assert signal_of(lambda: ctypes.string_at(end - 2, 2)) == 0
    assert signal_of(lambda: ctypes.string_at(end, 2)) == signal.SIGSEGV
    assert signal_of(lambda: ctypes.string_at(end + GUARD_BYTES - 2, 2)) == signal.SIGSEGV


def test_less_than_the_alignment_lies_between_odd_data_and_the_guard() -> None:
    _, tensor = make_pair(7, 13)
    end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    assert 0 <= place_of(182)[0] - place_of(182)[1] - 182 < ALIGNMENT
    assert signal_of(lambda: ctypes.string_at(end + ALIGNMENT, 1)) == signal.SIGSEGV


def test_what_lies_before_the_first_page_faults() -> None:
    _, tensor = make_pair(32, 64)
    page = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    assert signal_of(lambda: ctypes.string_at(page - 1, 1)) == signal.SIGSEGV
    assert signal_of(lambda: ctypes.string_at(page - GUARD_BYTES, 1)) == signal.SIGSEGV


def test_a_write_to_a_read_only_arena_faults_and_to_a_writable_one_arrives() -> None:
    _, tensor = make_pair(32, 64)
    assert signal_of(lambda: tensor.fill_(1.0)) == signal.SIGSEGV
    oracle, answer = make_pair(32, 64, writable=True)
    answer.fill_(1.0)
    assert bool((oracle.tensor == 1.0).all())


def test_the_mapping_lives_as_long_as_a_tensor_over_it() -> None:
    _, tensor = make_pair(32, 64)
    address, view = tensor.data_ptr(), tensor[1:]
    del tensor
    gc.collect()
    assert view.shape == (31, 64)
    assert signal_of(lambda: ctypes.string_at(address, 1)) == 0
    del view
    gc.collect()
    assert signal_of(lambda: ctypes.string_at(address, 1)) == signal.SIGSEGV
