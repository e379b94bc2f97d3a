"""The numeric gate: what it lets through and what not, on tensors alone."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="the gate compares tensors")

from grading.oracle.arenas import has_same_bytes  # noqa: E402
from grading.oracle.contents import edit_one, quiet_seeds  # noqa: E402
from grading.oracle.gates import DEFAULTS, Gate, class_ratio, compare, gate_for, is_within  # noqa: E402
from grading.oracle.secret import Secret  # noqa: E402
from tests.grader.support import OPS, grade_source  # noqa: E402

GATE = DEFAULTS["bfloat16"]


def passes(expected, actual, gate=GATE) -> bool:
    result = compare(expected, actual, gate)
    return result.bad == 0 and result.ratio is not None and result.ratio <= 1.0


@pytest.fixture
def product():
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(*shape, generator=generator) for shape in ((32, 256), (256, 48)))
    return x, w, (x @ w).bfloat16()


def test_other_rounding_passes_at_every_scale(product):
    x, w, reference = product
    halves = (x[:, :128] @ w[:128]).bfloat16() + (x[:, 128:] @ w[128:]).bfloat16()
    for scale in (1e-6, 1.0, 1e6):
        assert passes((reference.float() * scale).bfloat16(), (halves.float() * scale).bfloat16())


def test_cheap_answers_fail_at_every_scale(product):
    x, w, reference = product
    dropped = (x[:, :192] @ w[:192]).bfloat16()
    mean = torch.full_like(reference, float(reference.float().mean()))
    for scale in (1e-6, 1.0, 1e6):
        for cheap in (torch.zeros_like(reference), mean, dropped, -reference):
            result = compare((reference.float() * scale).bfloat16(), (cheap.float() * scale).bfloat16(), GATE)
            assert result.ratio is None or result.ratio >= 10


def test_one_wrong_element_is_reported(product):
    _, _, reference = product
    flipped = reference.clone()
    flipped.view(torch.uint8)[7, 31] ^= 0x40
    result = compare(reference, flipped, GATE)
    assert (result.bad, result.is_equal) == (1, False)
    assert compare(reference, reference.clone(), GATE).is_equal


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e-9, 1.0, 1e9, 1e12, 1e30])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (64, 96), (2, 3, 64)])
@pytest.mark.parametrize("gate", [GATE, Gate(0.1, 0.0, floor=0.25), Gate(0.05, 0.03, atol=1e-3, floor=0.0)])
def test_the_gate_is_its_formula_in_double_precision(size: float, shape: tuple[int, ...], gate: Gate):
    draw = torch.Generator().manual_seed(3)
    reference = torch.randn(shape, generator=draw) * size
    if len(shape) > 1:
        reference[0] *= 1e-4
    found = reference * (1 + 0.05 * torch.randn(shape, generator=draw))
    wide = reference.double()
    rows = wide.square().mean(-1, keepdim=True).sqrt() if shape else wide.abs()
    rows = rows.clamp_min(gate.floor * rows.square().mean().sqrt())
    bound = gate.atol + gate.share * rows + gate.rtol * wide.abs()
    ratios = (wide - found.double()).abs() / bound
    result = compare(reference, found, gate)
    assert result.ratio == pytest.approx(float(ratios.max()), rel=1e-5)
    assert result.bad == int((ratios > 1).sum())


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("count", [0, 1, 7, 8, 40])
def test_same_bytes_are_seen_at_any_place_and_length(offset: int, count: int):
    one, other = (torch.arange(64, dtype=torch.uint8)[offset : offset + count] for _ in range(2))
    assert bool(has_same_bytes(one, other))
    for place in range(count):
        changed = other.clone()
        changed[place] ^= 1
        assert not bool(has_same_bytes(one, changed))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_never_passes_for_what_is(bad: float):
    reference = torch.ones(4, 4)
    assert not passes(reference, reference.clone().index_put_((torch.tensor(0), torch.tensor(0)), torch.tensor(bad)))
    assert not passes(torch.full((4, 4), bad), reference)
    assert passes(torch.full((4, 4), bad), torch.full((4, 4), bad))


def test_infinities_keep_their_sign():
    assert not passes(torch.tensor([float("inf"), 1.0]), torch.tensor([float("-inf"), 1.0]))


def test_whole_numbers_are_exact():
    assert gate_for("toy/K", "int64") == Gate(0.0, 0.0)
    assert passes(torch.arange(5), torch.arange(5), gate_for("toy/K", "int64"))
    assert not passes(torch.arange(5), torch.arange(5) + 1, gate_for("toy/K", "int64"))


def test_the_decks_own_tolerance_lets_small_zeros_through():
    tiny = torch.full((4, 4), 1e-3)
    assert is_within(tiny, torch.zeros(4, 4), 0.01)
    assert not passes(tiny, torch.zeros(4, 4))
    assert not is_within(tiny, torch.full((4, 4), float("nan")), 0.01)


def test_the_error_class_tells_bf16_from_fp8(product):
    x, w, _ = product
    exact = x.double() @ w.double()
    rounded = (x.bfloat16().float() @ w.bfloat16().float()).bfloat16()
    narrow = (x.to(torch.float8_e4m3fn).float() @ w.to(torch.float8_e4m3fn).float()).bfloat16()
    assert class_ratio(exact, rounded, rounded) == pytest.approx(1.0)
    assert class_ratio(exact, rounded, narrow) > 4
    assert class_ratio(exact, exact, rounded) is None


def test_an_edit_changes_one_element_by_much_and_nothing_else():
    inputs = [torch.randn(8, 8), torch.arange(8)]
    edited = edit_one(inputs, Secret(b"1" * 32).rng("edit"), frozenset())
    assert int((inputs[0] != edited[0]).sum()) == 1
    assert torch.equal(inputs[1], edited[1])
    assert float((inputs[0] - edited[0]).abs().max()) > 30


def test_edits_one_after_the_other_stay_of_one_size():
    # On an H200 the spike doubled from edit to edit, until an honest kernel was 14 tolerances off in cuda 04.
    secret, inputs = Secret(b"1" * 32), [torch.randn(256, 4, generator=torch.Generator().manual_seed(1))]
    for number in range(12):
        inputs = edit_one(inputs, secret.rng(f"edit/{number}"), frozenset())
    assert float(inputs[0].abs().max()) < 80


def test_an_edit_is_large_beside_what_is_not_zero():
    sparse = torch.zeros(64, 64, dtype=torch.bfloat16)
    sparse[7, 11] = 0.5
    edited = edit_one([sparse], Secret(b"1" * 32).rng("edit"), frozenset())[0]
    assert float((edited - sparse).abs().max()) > 30
    silent = edit_one([torch.zeros(8)], Secret(b"1" * 32).rng("edit"), frozenset())[0]
    assert float(silent.abs().max()) == 64


def test_a_reference_cannot_seed_the_generators_again():
    drawn = []
    for seed in (1, 2):
        with quiet_seeds(seed):
            torch.manual_seed(0)
            drawn.append(torch.rand(4))
    assert not torch.equal(*drawn)
    torch.manual_seed(5)
    first = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(first, torch.rand(1))


def test_seeds_follow_from_the_secret_and_the_label_alone():
    secret, again, other = Secret(b"a" * 32), Secret(b"a" * 32), Secret()
    assert secret.seed("0/nominal/1") == again.seed("0/nominal/1") != secret.seed("0/nominal/2")
    assert secret.seed("0/nominal/1") != other.seed("0/nominal/1")
    assert secret.commitment == again.commitment != other.commitment
    assert bytes.fromhex(secret.reveal()) == b"a" * 32


def test_a_gate_stored_beside_the_reference_decides_and_stands_in_the_evidence(tmp_path):
    shutil.copytree(OPS / "toy", tmp_path / "toy")
    narrow = {"schema": 1, "gates": {"float32": {"share": 0.0, "rtol": 0.0}}}
    (tmp_path / "toy" / "G" / "tolerance.json").write_text(json.dumps(narrow))
    source = (OPS / "toy" / "G" / "reference.py").read_text().replace("self.decay)", "self.decay + 1e-7)")
    for folder, word, gates in (
        (OPS, "verified", {}),
        (tmp_path, "incorrect", {"float32": {"share": 0.0, "rtol": 0.0, "atol": 0.0, "floor": 0.02}}),
    ):
        done = grade_source("G", source, reference=folder / "toy" / "G" / "reference.py")
        assert (done.verdict.word, done.evidence.gates) == (word, gates)


def first_tokens(form):
    """Return 4096 answers of a first token, beta (q . k) v after 128 channels: q . k cancels in some by chance."""
    torch.manual_seed(5)
    q, k, v = (form(torch.randn(4096, 128) * 0.1) for _ in range(3))
    scale = 2.0**-0.5
    return q, k, v, lambda q, k: (form(q * scale) * form(k * scale)).sum(1, keepdim=True) * v


def test_a_row_that_cancelled_is_judged_by_what_cancelled():
    """A token that reads an almost empty state: operands in bf16 are honest, leaving the token out is not."""
    q, k, v, answer = first_tokens(lambda t: t.bfloat16().float())
    exact = (q * k).sum(1, keepdim=True) / 2 * v
    late = torch.randn(4096, 128) * 20 * exact.square().mean().sqrt()
    gate = gate_for("hard/02_kda_cutlass", "bfloat16")
    assert compare(torch.cat((late, exact)), torch.cat((late, answer(q, k))), gate).bad == 0
    assert compare(torch.cat((late, exact)), torch.cat((late, answer(q, k))), DEFAULTS["bfloat16"]).bad > 0
    assert compare(torch.cat((late, exact)), torch.cat((late, torch.zeros_like(exact))), gate).bad > 0
