"""CUDA kernels thread by thread on a processor: right answers, however the work is cut."""

import ctypes
import functools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulated import COMPILER, simulated

torch = pytest.importorskip("torch", reason="references are PyTorch; the web tier runs without it")

from grading.survey.bench import load_module  # noqa: E402
from tests.grading.judging import load_bound  # noqa: E402

pytestmark = [pytest.mark.compiler, pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")]
KERNELS = Path(__file__).resolve().parents[2] / "grading" / "kernels"
KDA = """
extern "C" int run(const void** in, void* out, uint8_t* scratch, int batch, int tokens, int heads, int processors) {
    return attend(in[0], in[1], in[2], (const float*)in[3], in[4], out, scratch, batch, tokens, heads, processors,
                  0.08838834764831845f, nullptr);
}
extern "C" size_t scratch(int rows, int chunks, int processors) { return scratch_bytes(rows, chunks, processors); }"""
TOPK = """
extern "C" int run(const float* x, float* v, long long* i, int rows, int n, int k, int threads, int span) {
    return select_rows(x, v, i, rows, n, k, threads, span, nullptr);
}"""
PAGES = """
extern "C" int run(const void** in, void* out, float* scratch, const int* sizes, float scale) {
    return attend_pages(in[0], in[1], (const int*)in[2], (const int*)in[3], out, scratch, sizes[0], sizes[1], sizes[2],
                        sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], scale, nullptr);
}"""
EXPERTS = """
extern "C" int run(const void** in, void* out, int rows, int width, int inner, int experts, int processors) {
    return launch(in[0], in[1], in[2], (const int*)in[3], out, rows, width, inner, experts, processors, nullptr);
}"""
PRODUCT = """
extern "C" int run(const void* x, const void* w, const float* scale, void* y, int m, int n, int k, int processors) {
    return launch(x, w, scale, y, m, n, k, processors, 0, nullptr);
}
extern "C" int padded(const void* x, void* to, int m, int k, int pitch) { return pad(x, to, m, k, pitch, nullptr); }"""
NARROW_WEIGHTS = """
extern "C" int run(const void* blocks, const void* x, void* out, int m, int n, int k, int processors) {
    return launch(blocks, x, out, m, n, k, processors, nullptr);
}"""
Compiled = Callable[[str, str], ctypes.CDLL]
Attend = Callable[[list[torch.Tensor], int], torch.Tensor]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compile each kernel once."""
    return functools.cache(lambda name, entry: simulated(KERNELS / name, entry, tmp_path_factory.mktemp("kernel")))


def broken(folder: Path, name: str, entry: str, text: str, instead: str) -> ctypes.CDLL:
    """Compile a kernel with a fault."""
    source = (KERNELS / name).read_text()
    assert text in source
    (folder / "broken.py").write_text(source.replace(text, instead))
    return simulated(folder / "broken.py", entry, folder)


def attending(library: ctypes.CDLL) -> Attend:
    """Return hard 02's chunked kernels as a function of the inputs and the number of multiprocessors."""
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


# Multiprocessors decide how nine chunks of a head are cut: into one segment, into two, into two with two blocks for
# each to read out, into five with two.
@pytest.mark.parametrize("processors", [1, 5, 12, 132])
def test_delta_attention(compiled: Compiled, processors: int) -> None:
    attend = attending(compiled("kda.py", KDA))
    for case, (inputs, expected) in kda_cases(576, 3).items():
        limit = 0.01 if case in ("nominal", "steep", "growing", "lasting") else 0.025
        assert error_of(attend(inputs, processors), expected) < limit, case


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def rows_to_select_from(n: int, k: int) -> torch.Tensor:
    """Return rows of many kinds: random, sorted, constant, with ties at the bound, clustered, below zero, infinite."""
    draw = torch.Generator().manual_seed(7)
    rows = torch.randn(7, n, generator=draw)
    rows[1] = torch.arange(n)
    rows[2] = 3.0
    rows[3] = (rows[3] * 4).round()
    rows[4, : n // 8] += 50
    rows[5] = -rows[5].abs()
    rows[6, ::97], rows[6, 1::97] = float("inf"), float("-inf")
    return rows


@pytest.mark.parametrize(
    ("n", "k", "threads", "span"),
    [(4096, 8, 1024, 1), (8192, 64, 1024, 2), (16384, 32, 1024, 4), (8192, 1, 1024, 8), (3000, 16, 0, 1)],
)
def test_topk(compiled: Compiled, n: int, k: int, threads: int, span: int) -> None:
    library, x = compiled("topk.py", TOPK), rows_to_select_from(n, k)
    values, indices = torch.full((len(x), k), float("nan")), torch.full((len(x), k), -1)
    assert library.run(pointer(x), pointer(values), pointer(indices), len(x), n, k, threads, span) == 0
    expected = torch.topk(x, k).values
    assert torch.equal(values, expected)
    assert torch.equal(x.gather(1, indices), expected)
    assert all(len(set(row)) == k for row in indices.tolist())


# Heads, heads of keys, width, page, splits, warps, stages, in a cluster: groups of one to twelve heads, pages that no
# step divides, one share and several, added up in a cluster's shared memory or by a second kernel.
@pytest.mark.parametrize(
    "sizes",
    [(8, 2, 64, 16, 1, 4, 2, 1), (8, 8, 128, 16, 4, 4, 3, 1), (12, 1, 64, 7, 3, 2, 6, 0), (16, 2, 128, 32, 8, 8, 2, 1)],
)
def test_paged_attention(compiled: Compiled, sizes: tuple[int, ...]) -> None:
    heads, kv_heads, width, page, splits, warps, stages, in_cluster = sizes
    draw, lengths = torch.Generator().manual_seed(3), torch.tensor([0, 1, 2 * page + 3, 5 * page], dtype=torch.int32)
    pages = 5
    table = torch.randperm(4 * pages, generator=draw).view(4, pages).int()
    cache = torch.randn(4 * pages, page, kv_heads, 2 * width, generator=draw).bfloat16()
    query, scale = torch.randn(4, heads, width, generator=draw).bfloat16(), width**-0.5
    out = torch.full_like(query, float("nan"))
    units = 4 * kv_heads * -(-heads // kv_heads // 8)
    scratch = torch.full((units * splits * 8 * (width + 2),), float("nan"))
    library = compiled("paged_attention.py", PAGES)
    pointers = (ctypes.c_void_p * 4)(*(tensor.data_ptr() for tensor in (query, cache, table, lengths)))
    given = (ctypes.c_int * 10)(4, heads, kv_heads, width, pages, page, splits, warps, stages, in_cluster)
    # Log 2 of e goes into the scale: the kernel's exponentials are powers of two.
    run_scale = ctypes.c_float(scale * 1.4426950408889634)
    assert library.run(pointers, pointer(out), pointer(scratch), given, run_scale) == 0
    for n, length in enumerate(lengths.tolist()):
        rows = cache[table[n].long()].flatten(0, 1)[:length].float().repeat_interleave(heads // kv_heads, 1)
        keys, values = rows.transpose(0, 1).split(width, -1)
        expected = ((query[n].float()[:, None] @ keys.mT) * scale).softmax(-1) @ values
        torch.testing.assert_close(out[n].float(), expected[:, 0], rtol=0.02, atol=0.02)


def grouped_error(run: Callable[..., int], bounds: list[int], width: int, inner: int, processors: int) -> float:
    """Return how far hard 06's kernel is off with rows of experts between bounds."""
    reference = load_bound(
        "hard/06_sonic_moe_swiglu", {"T_total": bounds[-1], "H": width, "I": inner, "E": len(bounds) - 1, "K": 1}
    )
    torch.manual_seed(1)
    model = reference.Model(*reference.get_init_inputs())
    rows = torch.randn(bounds[-1], width, dtype=torch.bfloat16)
    offsets = torch.tensor(bounds, dtype=torch.int32)
    expected = model(rows, offsets).detach().float()
    parts = [part.detach().contiguous() for part in (rows, model.W_gate, model.W_up, offsets)]
    out = torch.full((bounds[-1], inner), float("nan"), dtype=torch.bfloat16)
    pointers = (ctypes.c_void_p * 4)(*(part.data_ptr() for part in parts))
    assert run(pointers, pointer(out), bounds[-1], width, inner, len(bounds) - 1, processors) == 0
    return error_of(out, expected)


# Experts without rows, with one, with more than a tile has; widths that end within a tile and a step.
@pytest.mark.parametrize(
    ("bounds", "width", "inner", "processors"),
    [([0, 0, 1, 300, 300, 557], 136, 136, 4), ([0, 40], 64, 8, 2), ([0, 255, 511, 512], 392, 264, 6)],
)
def test_grouped_products(compiled: Compiled, bounds: list[int], width: int, inner: int, processors: int) -> None:
    assert grouped_error(compiled("moe_swiglu.py", EXPERTS).run, bounds, width, inner, processors) < 0.01


def product_error(run: Callable[..., int], m: int, n: int, k: int, processors: int) -> float:
    """Return how far hard 01's kernel is off."""
    torch.manual_seed(1)
    x, w = (torch.randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    scale, out = torch.rand(n) + 0.5, torch.full((m, n), float("nan"), dtype=torch.bfloat16)
    assert run(pointer(x), pointer(w), pointer(scale), pointer(out), m, n, k, processors) == 0
    return error_of(out, (x.float() @ w.float().T).bfloat16().float() * scale)


def narrow_error(run: Callable[..., int], m: int, n: int, k: int, processors: int) -> float:
    """Return how far hard 07's kernel is off."""
    torch.manual_seed(1)
    packed = torch.randint(0, 256, (k // 2, n), dtype=torch.uint8)
    scales, zeros = (torch.rand(k // 128, n) * 0.1 + 0.05).bfloat16(), torch.randint(0, 16, (k // 128, n)).bfloat16()
    x, out = torch.randn(m, k, dtype=torch.bfloat16), torch.full((m, n), float("nan"), dtype=torch.bfloat16)
    blocks = load_module(KERNELS / "w4a16_gemm.py", "w4a16_gemm").pack(packed, scales, zeros)
    assert run(pointer(blocks), pointer(x), pointer(out), m, n, k, processors) == 0
    levels = torch.stack((packed & 15, packed >> 4), dim=1).flatten(0, 1)
    weight = (levels - zeros.repeat_interleave(128, 0)) * scales.repeat_interleave(128, 0)
    return error_of(out, x.float() @ weight.float())


# Few rows, with one tile a block or three; some, with K in two and four parts; many, in tiles that end in the matrix.
@pytest.mark.parametrize(
    ("m", "n", "k", "processors"),
    [
        (1, 96, 256, 4),
        (8, 160, 640, 1),
        (16, 160, 640, 8),
        (13, 288, 384, 1),
        (32, 96, 1152, 4),
        (33, 32, 128, 4),
        (150, 416, 640, 4),
    ],
)
def test_product_of_four_bit_weights(compiled: Compiled, m: int, n: int, k: int, processors: int) -> None:
    assert narrow_error(compiled("w4a16_gemm.py", NARROW_WEIGHTS).run, m, n, k, processors) < 0.01


# Tiles of 256 by 256 that two blocks share, ragged in each direction and more than there are blocks; and few rows,
# whose K two blocks share.
@pytest.mark.parametrize(
    ("m", "n", "k", "processors"),
    [(300, 264, 272, 4), (600, 520, 144, 4), (40, 8, 16, 2), (7, 136, 1424, 4), (32, 128, 3200, 4)],
)
def test_fp8_product(compiled: Compiled, m: int, n: int, k: int, processors: int) -> None:
    assert product_error(compiled("fp8_gemm.py", PRODUCT).run, m, n, k, processors) < 0.005


@pytest.mark.parametrize("k", [1, 15, 16, 4127])
def test_rows_moved_to_multiples_of_sixteen_bytes(compiled: Compiled, k: int) -> None:
    x, pitch = torch.randint(0, 256, (5, k), dtype=torch.uint8), (k + 15) // 16 * 16
    # Words are read whole, up to the end of the matrix.
    given = torch.cat((x.flatten(), torch.zeros(-x.numel() % 4, dtype=torch.uint8)))
    to = torch.full((5, pitch), 255, dtype=torch.uint8)
    assert compiled("fp8_gemm.py", PRODUCT).padded(pointer(given), pointer(to), 5, k, pitch) == 0
    assert torch.equal(to[:, :k], x) and not to[:, k:].any()


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
    inputs, expected = kda_cases(256, 1)["nominal"]
    library = broken(tmp_path, "kda.py", KDA, text, instead)
    assert not error_of(attending(library)(inputs, 1), expected) < 0.01


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("wgmma_wait<1>();\n                    if (lane < 2) barrier", "if (lane < 2) barrier"),
        ("(512ull << 16)", "(256ull << 16)"),
        ("a + 2 * k", "a + k"),
        ("b + 128 * k", "b + 64 * k"),
        ("tile.first + rank * 128);", "tile.first);"),
    ],
)
def test_it_sees_an_early_release_and_a_wrong_descriptor_of_grouped_products(
    tmp_path: Path, text: str, instead: str
) -> None:
    run = broken(tmp_path, "moe_swiglu.py", EXPERTS, text, instead).run
    assert not grouped_error(run, [0, 300], 392, 136, 2) < 0.01


@pytest.mark.parametrize(
    ("text", "instead", "rows"),
    [
        ("wgmma_wait<1>();\n                    if (lane < 2) barrier", "if (lane < 2) barrier", 300),
        ("wgmma_e4m3_256(d, a + 2 * k, b + 2 * k, 1)", "wgmma_e4m3_256(d, a + 2 * k, b, 1)", 300),
        ("const int all = (K + 127) / 128, first = rank == 0 ? 0", "const int all = (K + 127) / 128, first = 0 ? 0", 8),
        ('"r"(rank ^ 1)', '"r"(rank)', 8),
    ],
)
def test_it_sees_an_early_release_and_a_wrong_block_of_the_fp8_product(
    tmp_path: Path, text: str, instead: str, rows: int
) -> None:
    run = broken(tmp_path, "fp8_gemm.py", PRODUCT, text, instead).run
    assert not product_error(run, rows, 264, 1296, 2) < 0.005


@pytest.mark.parametrize(
    ("text", "instead", "rows"),
    [
        ("row0 + rank * 64)", "row0)", 150),
        ("wgmma_bf16(d, a[k], b + 2 * k);", "wgmma_bf16(d, a[k], b);", 16),
        ("high_twice(sz[p % 2])", "high_twice(sz[0])", 1),
        ("first = rank * groups / SPLIT, mine", "first = 0, mine", 16),
    ],
)
def test_it_sees_a_wrong_place_and_a_wrong_operand_of_four_bit_weights(
    tmp_path: Path, text: str, instead: str, rows: int
) -> None:
    run = broken(tmp_path, "w4a16_gemm.py", NARROW_WEIGHTS, text, instead).run
    assert not narrow_error(run, rows, 160, 1280, 8) < 0.01
