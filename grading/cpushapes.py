"""Small shapes of the decks' problems, for grading on a processor: the same operation, its constraints kept.

A grade on these shapes proves that the answer is right there, and exercises the whole grader; it says nothing about
speed and nothing about the deck's own shapes.
"""

from grading.problem import Form, Problem, Shape
from grading.tomldata import CatalogueError

# The model's own sizes are no dimensions of the problem's shapes; small ones are assigned to the reference like them.
SMALL_KIMI: Shape = {
    "hidden": 256,
    "heads": 2,
    "kv_lora": 128,
    "qk_nope": 32,
    "qk_rope": 16,
    "v_head": 64,
    "n_experts": 16,
    "n_active": 4,
    "moe_inter": 128,
}
CPU_SHAPES: dict[str, list[Shape]] = {
    "cuda/01_glm52_fused_moe": [
        {"T": 40, "E": 12, "top_k": 3, "n_shared": 2, "H": 128, "I": 64, "E_act": 12},
        {"T": 1, "E": 12, "top_k": 3, "n_shared": 1, "H": 192, "I": 96, "E_act": 3},
    ],
    "cuda/02_deepseek_nsa": [
        {"B": 1, "H": 2, "S": 1000, "D": 64, "selected_keys": 380.0},
        {"B": 2, "H": 1, "S": 700, "D": 128, "selected_keys": 317.0},
    ],
    "cuda/03_megaqwen_decode": [
        {"ctx_len": 70, "decode_steps": 3, "num_layers": 2},
        {"ctx_len": 200, "decode_steps": 2, "num_layers": 1},
    ],
    "cuda/04_grid_mingru_sps": [{"num_envs": 200, "horizon": 4}, {"num_envs": 37, "horizon": 6}],
    "hard/01_fp8_gemm": [{"M": 32, "N": 48, "K": 80}, {"M": 16, "N": 64, "K": 127}],
    "hard/02_kda_cutlass": [{"B": 1, "T": 256, "H": 2, "K": 128, "V": 128, "CHUNK_SIZE": 64}],
    "hard/03_paged_attention": [
        {"batch": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "seq_len": 70, "page_size": 16},
        {"batch": 3, "num_heads": 8, "num_kv_heads": 2, "head_dim": 32, "seq_len": 256, "page_size": 16},
    ],
    "hard/05_topk_bitonic": [{"batch": 2, "n": 2048, "k": 8}, {"batch": 4, "n": 4096, "k": 32}],
    "hard/06_sonic_moe_swiglu": [{"T_total": 64, "H": 1024, "I": 16, "E": 4, "K": 2}],
    "hard/07_w4a16_gemm": [{"M": 4, "N": 32, "K": 256}, {"M": 1, "N": 48, "K": 384}],
    # Learning takes its time: a grade of this one is minutes, not one minute.
    "mega/01_rl_grid_ppo": [{"total_env_steps": 30 * 32 * 48, "envs": 48}],
    "mega/02_kimi_linear_decode": [SMALL_KIMI | {"ctx": 70, "steps": 1}, SMALL_KIMI | {"ctx": 200, "steps": 1}],
    "verify/01_conv_update": [{"H": 1, "S": 4, "B": 3}, {"H": 2, "S": 2, "B": 2}],
    "verify/02_kda_recurrence": [{"H": 1, "S": 4, "B": 3}, {"H": 2, "S": 2, "B": 2}],
}
# Through the deck's entry points a call begins with the prefill, one token after the other.
ENTRY_CPU_SHAPES: dict[str, list[Shape]] = {
    "cuda/03_megaqwen_decode": [
        {"ctx_len": 9, "decode_steps": 3, "num_layers": 1},
        {"ctx_len": 5, "decode_steps": 2, "num_layers": 2},
    ],
}
_LARGEST = 1 << 24


def shapes_for(problem: Problem, device: str, form: Form = "plain") -> list[Shape]:
    """Return the shapes that a device grades in a form: the problem's own, or small ones on a processor.

    Raises CatalogueError for a problem whose shapes are too large for a processor and have no small ones here.
    """
    if device != "cpu":
        return (problem.entry.shapes if form == "entry" and problem.entry is not None else []) or problem.shapes
    if form == "entry" and problem.key in ENTRY_CPU_SHAPES:
        return ENTRY_CPU_SHAPES[problem.key]
    if problem.key in CPU_SHAPES:
        return CPU_SHAPES[problem.key]
    if all(problem.bytes(shape) <= _LARGEST for shape in problem.shapes):
        return problem.shapes
    raise CatalogueError(f"{problem.key} has no small shapes for a processor; there are {', '.join(CPU_SHAPES)}")
