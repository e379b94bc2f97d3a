"""Our own Triton kernels in Triton's interpreter on tiny shapes, each in a process of its own.

A name is that of a kernel, or of a right solution of the problem.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels are Triton; the web tier runs without it")

ROOT = Path(__file__).resolve().parents[2]
KIMI = (
    "mega/02_kimi_linear_decode",
    {
        "ctx": 40,
        "steps": 1,
        "hidden": 128,
        "heads": 1,
        "kv_lora": 128,
        "qk_nope": 32,
        "qk_rope": 16,
        "v_head": 128,
        "n_experts": 8,
        "n_active": 2,
        "moe_inter": 128,
    },
)
KERNELS = {
    "block_sparse_attention": ("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 600, "D": 16, "selected_keys": 0}),
    "masked": ("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 600, "D": 16, "selected_keys": 0}),
    "fused_moe": (
        "cuda/01_glm52_fused_moe",
        {"T": 18, "E": 6, "top_k": 2, "n_shared": 1, "H": 32, "I": 16, "E_act": 6},
    ),
    "conv_update": ("verify/01_conv_update", {"H": 1, "S": 2, "B": 3}),
    "kda_verify": ("verify/02_kda_recurrence", {"H": 1, "S": 2, "B": 1}),
    "mingru_rollout": ("cuda/04_grid_mingru_sps", {"num_envs": 5, "horizon": 2}),
    "kimi_decode": KIMI,
    "variants/kimi_decode_wide": KIMI,
    "variants/qwen_decode_ahead": (
        "cuda/03_megaqwen_decode",
        {"ctx_len": 300, "decode_steps": 1, "num_layers": 1},
    ),
    "qwen_decode": ("cuda/03_megaqwen_decode", {"ctx_len": 300, "decode_steps": 1, "num_layers": 1}),
}
# Interpreted, these take from half a minute to minutes.
SLOW = {"mingru_rollout", "kimi_decode", "variants/kimi_decode_wide"}


@pytest.mark.parametrize("name", KERNELS)
def test_an_interpreted_kernel_agrees_with_the_reference(name: str) -> None:
    if name in SLOW and not os.environ.get("PROOFLINE_SLOW"):
        pytest.skip("the interpreter takes long here; set PROOFLINE_SLOW to run it")
    key, shape = KERNELS[name]
    kernel, solution = Path(f"grading/kernels/{name}.py"), f"grading/decks/{key}/solutions/right/{name}.py"
    path = str(kernel) if (ROOT / kernel).exists() else solution
    command = [sys.executable, "-m", "tests.grading.judging", key, path, json.dumps([shape])]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = json.loads(done.stdout)
    assert max(errors.values()) <= 1.0, errors
