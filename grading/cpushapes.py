"""Small shapes of the decks' problems, for grading on a processor: the same operation, its constraints kept.

A grade on these shapes proves that the answer is right there, and exercises the whole grader; it says nothing about
speed and nothing about the deck's own shapes.
"""

from grading.problem import Problem, Shape
from grading.tomldata import CatalogueError

CPU_SHAPES: dict[str, list[Shape]] = {
    "hard/01_fp8_gemm": [{"M": 32, "N": 48, "K": 80}, {"M": 16, "N": 64, "K": 127}],
    "hard/02_kda_cutlass": [{"B": 1, "T": 256, "H": 2, "K": 128, "V": 128, "CHUNK_SIZE": 64}],
    "hard/03_paged_attention": [
        {"batch": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "seq_len": 70, "page_size": 16},
        {"batch": 3, "num_heads": 8, "num_kv_heads": 2, "head_dim": 32, "seq_len": 256, "page_size": 16},
    ],
    "hard/05_topk_bitonic": [{"batch": 2, "n": 2048, "k": 8}, {"batch": 4, "n": 4096, "k": 32}],
    "hard/06_sonic_moe_swiglu": [{"T_total": 64, "H": 1024, "I": 16, "E": 4, "K": 2}],
    "hard/07_w4a16_gemm": [{"M": 4, "N": 32, "K": 256}, {"M": 1, "N": 48, "K": 384}],
}
_LARGEST = 1 << 24


def shapes_for(problem: Problem, device: str) -> list[Shape]:
    """Return the shapes that a device grades: the problem's own, or small ones on a processor.

    Raises CatalogueError for a problem whose shapes are too large for a processor and have no small ones here.
    """
    if device != "cpu":
        return problem.shapes
    if problem.key in CPU_SHAPES:
        return CPU_SHAPES[problem.key]
    if all(problem.bytes(shape) <= _LARGEST for shape in problem.shapes):
        return problem.shapes
    raise CatalogueError(f"{problem.key} has no small shapes for a processor; there are {', '.join(CPU_SHAPES)}")
