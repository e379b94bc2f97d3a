"""The hard deck's references against float64 formulas, and each problem's solutions against the deck's check."""

import importlib.util
import random
import sys
from types import ModuleType

import msgspec
import pytest

from grading.hardware import load_gpus
from grading.problem import DECKS, load_problem
from grading.runner.job import Job, build_job, may_use_forbidden

torch = pytest.importorskip("torch", reason="references are PyTorch; the web tier runs without it")

from grading.runner import child  # noqa: E402
from grading.runner.models import bind_shape  # noqa: E402

TINY = {
    "01_fp8_gemm": {"M": 32, "N": 48, "K": 80},
    "02_kda_cutlass": {"B": 1, "T": 256, "H": 2, "K": 128, "V": 128, "CHUNK_SIZE": 64},
    "03_paged_attention": {
        "batch": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "seq_len": 70,
        "page_size": 16,
    },
    "05_topk_bitonic": {"batch": 2, "n": 2048, "k": 8},
    "06_sonic_moe_swiglu": {"T_total": 64, "H": 1024, "I": 16, "E": 4, "K": 2},
    "07_w4a16_gemm": {"M": 4, "N": 32, "K": 256},
}
SOLUTIONS = sorted(path for path in DECKS.glob("hard/*/solutions/*/*.py"))
EXPECTED_CODE = {"incorrect": 1, "integrity": 0}


def load_reference(problem: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ref_{problem}", DECKS / "hard" / problem / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bind_shape(module, TINY[problem])
    return module


def run_reference(problem: str, seed: int = 42):
    module = load_reference(problem)
    model = module.Model(*module.get_init_inputs()).eval()
    torch.manual_seed(seed)
    inputs = module.get_inputs()
    with torch.no_grad():
        return model, inputs, model(*inputs)


def tiny_job(problem: str, solution: str) -> Job:
    shape = TINY[problem]
    job = build_job(load_problem("hard", problem), load_gpus()["CPU"], "cpu", shapes=[shape], peak=1.0)
    exempt = may_use_forbidden("baseline", solution)
    return msgspec.structs.replace(job, forbidden_text=[] if exempt else job.forbidden_text, warmup=1, trials=2)


def expect_close(actual, expected, rtol: float = 0.01) -> None:
    expected = expected.detach()
    error = (actual.detach().double() - expected).norm() / expected.norm()
    assert float(error) <= rtol


def test_fp8_gemm_is_the_scaled_product():
    model, (x,), out = run_reference("01_fp8_gemm")
    expect_close(out, (x.double() @ model.weight.double().T) * model.weight_scale.double())


def test_kda_is_the_delta_rule_with_per_channel_decay():
    _, (q, k, v, g, beta), out = run_reference("02_kda_cutlass")
    state = torch.zeros(2, 128, 128, dtype=torch.float64)
    expected = torch.zeros(v.shape, dtype=torch.float64)
    for t in range(256):
        for h in range(2):
            decayed = g[0, t, h].double().exp()[:, None] * state[h]
            delta = beta[0, t, h].double() * (v[0, t, h].double() - decayed.T @ k[0, t, h].double())
            state[h] = decayed + torch.outer(k[0, t, h].double(), delta)
            expected[0, t, h] = state[h].T @ q[0, t, h].double() / 128**0.5
    expect_close(out, expected)


def test_paged_attention_reads_only_live_slots():
    _, (query, cache, table, lengths), out = run_reference("03_paged_attention")
    expected = torch.zeros(out.shape, dtype=torch.float64)
    for b in range(2):
        for h in range(4):
            rows = torch.stack([cache[table[b, i // 16], i % 16, h // 2] for i in range(int(lengths[b]))]).double()
            weights = torch.softmax(rows[:, :16] @ query[b, h].double() / 4, dim=0)
            expected[b, h] = weights @ rows[:, 16:]
    expect_close(out, expected)


def test_topk_returns_sorted_values_and_where_they_stand():
    _, (x,), (values, indices) = run_reference("05_topk_bitonic")
    for row in range(2):
        assert values[row].tolist() == sorted(x[row].tolist(), reverse=True)[:8]
        assert x[row][indices[row]].tolist() == values[row].tolist()


def test_moe_uses_each_experts_own_rows():
    model, (hidden, offsets), out = run_reference("06_sonic_moe_swiglu")
    expected = torch.zeros(out.shape, dtype=torch.float64)
    for row in range(128):
        expert = int((offsets[1:] <= row).sum())
        gate, up = (hidden[row].double() @ weight[expert].double() for weight in (model.W_gate, model.W_up))
        expected[row] = gate / (1 + (-gate).exp()) * up
    expect_close(out, expected, rtol=0.02)


def test_w4a16_unpacks_the_low_nibble_as_the_even_row():
    model, (x,), out = run_reference("07_w4a16_gemm")
    weight = torch.zeros(256, 32, dtype=torch.float64)
    for row in range(256):
        byte = model.w_q[row // 2].to(torch.int64)
        level = byte // 16 if row % 2 else byte % 16
        weight[row] = (level - model.zeros[row // 128].double()) * model.scales[row // 128].double()
    expect_close(out, x.double() @ weight)


def test_quantised_weights_stay_within_half_a_step():
    module = load_reference("07_w4a16_gemm")
    weight = torch.randn(256, 32) * 0.02
    packed, scales, zeros = module.quantise(weight, 128)
    error = (module.dequantise(packed, scales, zeros, 128).float() - weight).abs()
    assert bool((error <= scales.float().repeat_interleave(128, 0) * 0.5 + 4e-4).all())


@pytest.mark.parametrize("problem", TINY)
def test_structural_cases_keep_form_and_repeat_with_their_seed(problem: str):
    module = load_reference(problem)
    inputs = module.get_inputs()
    kept = [tensor.clone() for tensor in inputs]
    first, second = (list(module.structural_cases(inputs, random.Random(7))) for _ in range(2))
    assert [name for name, _ in first] == [name for name, _ in second]
    for (_, case), (_, again) in zip(first, second, strict=True):
        assert [(t.shape, t.dtype) for t in case] == [(t.shape, t.dtype) for t in inputs]
        assert all(torch.equal(a.float(), b.float()) for a, b in zip(case, again, strict=True))
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(inputs, kept, strict=True))


@pytest.mark.parametrize("problem", ["01_fp8_gemm", "07_w4a16_gemm"])
def test_one_hot_cases_select_single_rows_of_the_weight(problem: str):
    module = load_reference(problem)
    model = module.Model(*module.get_init_inputs())
    for _, case in module.structural_cases(module.get_inputs(), random.Random(1)):
        assert (case[0].float() != 0).sum(dim=1).tolist() == [1] * case[0].shape[0]
        assert float(model(*case).float().abs().max()) > 0


def test_ragged_experts_still_own_all_rows():
    module = load_reference("06_sonic_moe_swiglu")
    hidden, offsets = module.get_inputs()
    for _, (_, ragged) in module.structural_cases([hidden, offsets], random.Random(3)):
        assert int(ragged[0]) == 0
        assert int(ragged[-1]) == hidden.shape[0]
        assert bool((ragged.diff() >= 1).all())


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parts[-4]}-{path.parts[-2]}-{path.stem}")
def test_right_solutions_pass_and_wrong_ones_fail(path, tmp_path, monkeypatch, capsys):
    problem, solution = path.parts[-4], path.read_text(encoding="utf-8")
    first = solution.splitlines()[0]
    expected = EXPECTED_CODE[first.removeprefix("# expect: ")] if path.parts[-2] == "wrong" else 0
    (tmp_path / "solution.py").write_text(solution, encoding="utf-8")
    (tmp_path / "reference.py").write_bytes((DECKS / "hard" / problem / "reference.py").read_bytes())
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(tiny_job(problem, solution)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KBH_PROPERTY_SEED", "11")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    for name in ("reference", "solution"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert child.main("check", "job.json", "out.json") == expected, capsys.readouterr().out
    assert ("PASS" in capsys.readouterr().out.splitlines()) is (expected == 0)
    for name in ("reference", "solution"):
        monkeypatch.delitem(sys.modules, name, raising=False)
