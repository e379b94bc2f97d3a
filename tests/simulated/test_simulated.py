"""CUDA kernels thread by thread on a processor: right answers, however the work is cut."""

import ctypes
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulated import COMPILER, simulated

torch = pytest.importorskip("torch", reason="references are PyTorch; the web tier runs without it")

from tests.grading.judging import load_bound  # noqa: E402

pytestmark = [pytest.mark.compiler, pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")]
SEGMENTS = Path(__file__).resolve().parents[2] / "grading" / "kernels" / "variants" / "kda_segments.py"
KDA = """
extern "C" int run(const void** in, void* out, uint8_t* scratch, int batch, int tokens, int heads, int processors) {
    return attend(in[0], in[1], in[2], (const float*)in[3], in[4], out, scratch, batch, tokens, heads, processors,
                  0.08838834764831845f, nullptr);
}
extern "C" size_t scratch(int rows, int chunks, int processors) { return scratch_bytes(rows, chunks, processors); }"""
Attend = Callable[[list[torch.Tensor], int], torch.Tensor]


def attending(kernel: Path, folder: Path) -> Attend:
    """Return hard 02's chunked kernels as a function of the inputs and the number of multiprocessors."""
    library = simulated(kernel, KDA, folder)
    library.scratch.restype = ctypes.c_size_t

    def run(inputs: list[torch.Tensor], processors: int) -> torch.Tensor:
        inputs = [tensor.contiguous() for tensor in inputs]
        batch, tokens, heads, _ = inputs[0].shape
        out = torch.full_like(inputs[2], float("nan"))
        size = library.scratch(batch * heads, tokens // 64, processors)
        memory = torch.full((size + 2048,), 255, dtype=torch.uint8)
        start = -memory.data_ptr() % 1024
        pointers = (ctypes.c_void_p * 5)(*(tensor.data_ptr() for tensor in inputs))
        place = ctypes.c_void_p(memory.data_ptr() + start)
        assert library.run(pointers, ctypes.c_void_p(out.data_ptr()), place, batch, tokens, heads, processors) == 0
        assert bool((memory[start + size :] == 255).all()), "writes beyond its scratch"
        return out

    return run


def kda_cases(tokens: int, heads: int) -> dict[str, tuple[list[torch.Tensor], torch.Tensor]]:
    """Return named inputs of one sequence and the reference's answers."""
    shape = {"B": 1, "T": tokens, "H": heads, "K": 128, "V": 128, "CHUNK_SIZE": 64}
    reference = load_bound("hard/02_kda_cutlass", shape)
    nominal = reference.get_inputs()
    cases = {"nominal": nominal, **dict(reference.structural_cases(nominal, random.Random(3)))}
    for name, rate in (("steep", -3.0), ("growing", 0.01), ("lasting", -0.001)):
        cases[name] = [*nominal[:3], torch.full_like(nominal[3], rate), nominal[4]]
    model = reference.Model(*reference.get_init_inputs())
    return {name: (inputs, model(*inputs).float()) for name, inputs in cases.items()}


def error_of(answer: torch.Tensor, expected: torch.Tensor) -> float:
    return float((answer.float() - expected).norm() / expected.norm())


# Multiprocessors decide how nine chunks of a head are cut: into one segment, into three, into as many as are worth it
# with two blocks for each.
@pytest.mark.parametrize("processors", [1, 12, 132])
def test_delta_attention_in_segments(tmp_path: Path, processors: int) -> None:
    attend = attending(SEGMENTS, tmp_path)
    for name, (inputs, expected) in kda_cases(576, 3).items():
        limit = 0.01 if name in ("nominal", "steep", "growing", "lasting") else 0.025
        assert error_of(attend(inputs, processors), expected) < limit, name


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("wgmma_wait<READ ? 2 : 1>();\n        round_and_decay(low", "round_and_decay(low"),
        ("wgmma_wait<0>();\n    }\n    wgmma_wait", "}\n    wgmma_wait"),
        ("await_copies();\n        group_sync", "group_sync"),
        ("share.part * 4 + warp", "share.part * 4 + (warp ^ 1)"),
        ("multiply_tile(d, z, at + W + TILE)", "multiply_tile(d, z, at + W)"),
        ("(column_8 % 8 ^ (row & 7))", "column_8 % 8"),
    ],
)
def test_the_simulator_sees_a_wait_that_is_missing_and_a_wrong_layout(tmp_path: Path, text: str, instead: str) -> None:
    source = SEGMENTS.read_text()
    assert text in source
    broken = tmp_path / "broken.py"
    broken.write_text(source.replace(text, instead))
    inputs, expected = kda_cases(256, 1)["nominal"]
    assert not error_of(attending(broken, tmp_path)(inputs, 132), expected) < 0.01
