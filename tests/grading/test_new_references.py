"""References of the decks cuda, mega and verify against formulas written a second time, in float64."""

import os
import random

import pytest

torch = pytest.importorskip("torch", reason="references are PyTorch; the web tier runs without it")

from grading.oracle.gates import compare, gate_for  # noqa: E402
from grading.problem import DECKS  # noqa: E402
from tests.grading.judging import load_bound, load_file  # noqa: E402


def drawn(key: str, shape: dict, seed: int = 3):
    reference = load_bound(key, shape)
    torch.manual_seed(seed)
    with torch.no_grad():
        model = reference.Model(*reference.get_init_inputs()).eval()
        return reference, model, reference.get_inputs()


def expect_close(actual, expected, rtol: float = 0.01) -> None:
    error = (actual.double() - expected.double()).norm() / expected.double().norm()
    assert float(error) <= rtol


def test_block_sparse_attention_takes_the_eight_best_blocks_and_the_window():
    _, model, (q, k, v) = drawn("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 900, "D": 16})
    out = model(q, k, v)
    query, key, value = (tensor[0, 0].double() for tensor in (q, k, v))
    for t in (0, 63, 300, 577, 640, 899):
        scores = key[: t + 1] @ query[t] / 4
        means = [float(scores[c : c + 64].mean()) for c in range(0, t + 1, 64)]
        best = sorted(range(len(means)), key=lambda block: (means[block], block), reverse=True)[:8]
        seen = [j for j in range(t + 1) if j // 64 in best or t - j < 64]
        expect_close(out[0, 0, t], scores[seen].softmax(0) @ value[seen])


def test_equal_importances_prefer_the_later_block():
    _, model, (q, k, v) = drawn("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 1000, "D": 16})
    out = model(torch.zeros_like(q), k, v)
    expect_close(out[0, 0, 999], v[0, 0, 512:].double().mean(0))


def test_a_close_choice_may_fall_either_way_and_a_clear_one_may_not():
    reference, model, inputs = drawn("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 900, "D": 16})
    expected = model(*inputs)
    answers = reference.possible_answers(*(tensor[0, 0] for tensor in inputs))
    wrong = expected.clone()
    wrong[0, 0, -1] = -expected[0, 0, -1]
    ((_, adjusted, _),) = reference.compared_parts(inputs, expected, wrong)
    assert any(torch.equal(adjusted[0, 0, -1], answer) for answer in answers)
    assert not torch.equal(adjusted[0, 0, -1], wrong[0, 0, -1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", [1, 2])
def test_the_closest_choices_may_fall_either_way_among_many_blocks(ties: int, seed: int):
    reference, _, inputs = drawn("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 8192, "D": 128}, seed)
    q, k, v = (tensor[0, 0] for tensor in reference.with_peaks(inputs, random.Random(seed)))
    position = torch.tensor([len(q) - 1])

    def ranked() -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        scores = q[-1:].float() @ k.float().T / 128**0.5
        means = reference.importance(scores, position)
        return scores, means, means[0].sort(descending=True).indices.tolist()

    order = ranked()[2]
    last_in, first_out = order[8 - ties : 8], order[8 : 8 + ties]
    for block in (*last_in[1:], *first_out):
        k[block * 64 : (block + 1) * 64] = k[last_in[0] * 64 : (last_in[0] + 1) * 64].flip(0)
    scores, means, _ = ranked()
    other = reference.choose(means)
    for a, b in zip(last_in, first_out, strict=True):
        other[0, a], other[0, b] = other[0, b].item(), other[0, a].item()
    answer = reference.attend(scores, reference.admitted(other, position, len(q)), v.float())[0]
    assert any(torch.equal(answer, found) for found in reference.possible_answers(q, k, v))


def test_a_block_that_is_clearly_behind_may_not_be_chosen():
    reference, _, inputs = drawn("cuda/02_deepseek_nsa", {"B": 1, "H": 1, "S": 8191, "D": 128})
    q, k, v = (tensor[0, 0] for tensor in inputs)
    counts = [len(reference.possible_answers(q[: t + 1], k[: t + 1], v[: t + 1])) for t in range(1000, 8191, 300)]
    assert counts.count(1) > 0.6 * len(counts)


def test_fused_experts_weigh_each_chosen_expert():
    shape = {"T": 5, "E": 6, "top_k": 2, "n_shared": 2, "H": 32, "I": 16, "E_act": 6}
    _, model, (x, ids, weights) = drawn("cuda/01_glm52_fused_moe", shape)

    def swiglu(row, w1, w2):
        gate, up = w1.double()[:16] @ row, w1.double()[16:] @ row
        return w2.double() @ (gate / (1 + (-gate).exp()) * up)

    out = model(x, ids, weights)
    for t in range(5):
        row = x[t].double()
        total = sum(swiglu(row, model.w1_shared[s], model.w2_shared[s]) for s in range(2))
        for number, weight in zip(ids[t].tolist(), weights[t].double(), strict=True):
            total = total + weight * swiglu(row, model.w1_routed[number], model.w2_routed[number])
        expect_close(out[t].detach(), total.detach())


def test_decoding_two_tokens_equals_decoding_them_one_by_one():
    _, model, (hidden, tokens, keys, values) = drawn(
        "cuda/03_megaqwen_decode", {"ctx_len": 12, "decode_steps": 2, "num_layers": 1}
    )
    with torch.no_grad():
        whole = model(hidden, tokens, keys, values)
        first = model(hidden, tokens[:1], keys, values)
        longer = [torch.cat(pair, dim=2) for pair in ((keys, first[1]), (values, first[2]))]
        second = model(first[0], tokens[1:], *longer)
    assert torch.equal(whole[0], second[0])
    assert torch.equal(whole[1], torch.cat((first[1], second[1]), dim=2))


@pytest.mark.parametrize(("name", "steps"), [("sharp_keys", 40), ("sharp_first_half", 40), ("silent_tokens", 96)])
def test_steps_that_rounding_decides_are_not_held_against_anyone(name: str, steps: int):
    """Each output feeds the next step: there an error of one in 256 grows to most of the answer in 64 steps.

    How many elements are wrong by then follows the processor's instructions: 12,000 to 480,000 here.
    """
    reference, model, inputs = drawn("cuda/03_megaqwen_decode", {"ctx_len": 96, "decode_steps": steps})
    content = dict(reference.structural_cases(inputs, random.Random(1)))[name]
    hidden = content[0].clone()
    hidden[7] += hidden[7].sign() * 2.0**-6
    gate = gate_for("cuda/03_megaqwen_decode", "bfloat16")
    with torch.no_grad():
        expected, actual = (list(model(first, *content[1:])) for first in (content[0], hidden))
        assert sum(compare(*pair, gate).bad for pair in zip(expected, actual, strict=True)) > 0, (
            "rounding decides nothing"
        )
        nearest = model.nearest(content, expected, actual)
        assert sum(compare(*pair, gate).bad for pair in zip(nearest, actual, strict=True)) == 0
        # What stands before the first step is attended to at once, and nothing excuses what is wrong there.
        late = [actual[0], actual[1].clone(), actual[2]]
        late[1][:, :, 0] *= 1.5
        nearest = model.nearest(content, expected, late)
        assert compare(nearest[1], late[1], gate).bad > 0


def test_nominal_steps_all_count():
    _, model, inputs = drawn("cuda/03_megaqwen_decode", {"ctx_len": 96, "decode_steps": 40})
    with torch.no_grad():
        expected = list(model(*inputs))
        assert model.nearest(inputs, expected, [torch.zeros_like(part) for part in expected]) is expected


def test_any_hit_moves_every_generator_twice():
    reference = load_bound("cuda/04_grid_mingru_sps", {"num_envs": 2, "horizon": 1})
    agent, food = torch.tensor([[5.0, 5.0], [0.0, 0.0]]), torch.tensor([[5.0, 4.0], [9.0, 9.0]])
    rng = torch.tensor([7, 11])
    moved, new_food, reward, new_rng = reference.step(agent, food, torch.tensor([0, 2]), rng)
    states = [7, 11]
    for _ in range(2):
        states = [(s * 6364136223846793005 + 1) % 2**64 & (2**63 - 1) for s in states]
    assert new_rng.tolist() == states
    assert reward.tolist() == [1.0, 0.0]
    assert moved.tolist() == [[5.0, 4.0], [0.0, 0.0]]
    assert new_food[1].tolist() == [9.0, 9.0]
    assert new_food[0, 1] == states[0] % 11
    away = reference.step(agent, food, torch.tensor([1, 2]), rng)
    assert torch.equal(away[3], rng)


def other_moves(near: float, apart: float, seed: int):
    """Return an answer, that of a model which rounds otherwise, and the admissible one that is nearest to the second.

    near   how far the bias of one of the two best moves is above the other's
    apart  by what share the second model's weights of one move differ
    """
    reference = load_bound("cuda/04_grid_mingru_sps", {"num_envs": 3000, "horizon": 6})
    torch.manual_seed(seed)
    model, other, inputs = reference.Model(6), reference.Model(6), reference.get_inputs()
    with torch.no_grad():
        model.b_a[2:] = 0.5
        model.w_a[3] = model.w_a[2] * (1 + 0.01 * torch.randn(256))
        model.b_a[3] += near
        other.load_state_dict(model.state_dict())
        other.w_a[2] *= 1 + apart * torch.randn(256)
        other.b_a[3] -= 2 * near
        expected, actual = list(model(*inputs)), list(other(*inputs))
        return expected, actual, model.nearest(inputs, expected, actual)


@pytest.mark.parametrize("seed", range(4))
def test_close_moves_may_go_either_way_in_every_game(seed: int):
    """A million decisions a call meet some that rounding decides; what follows from each way is right."""
    expected, actual, nearest = other_moves(0.0, 0.01, seed)
    assert int((expected[4] != actual[4]).any(1).sum()) > 0, "no game went another way"
    assert torch.equal(nearest[3], actual[3]) and torch.equal(nearest[4], actual[4])
    expect_close(nearest[5], actual[5], 1e-3)
    assert all(torch.equal(a, b) for a, b in zip(nearest[:3], expected[:3], strict=True))


def test_a_clear_move_may_go_one_way_only():
    expected, actual, nearest = other_moves(1e-3, 0.0, 1)
    assert int((expected[4] != actual[4]).any(1).sum()) > 0
    assert torch.equal(nearest[4], expected[4])


def test_a_linear_layer_is_the_delta_rule_with_a_short_convolution():
    sizes = {"hidden": 128, "heads": 1, "kv_lora": 128, "qk_nope": 32, "qk_rope": 16, "v_head": 128}
    sizes |= {"n_experts": 8, "n_active": 2, "moe_inter": 128, "ctx": 9, "steps": 1}
    reference, model, (token, memory, windows, _, _) = drawn("mega/02_kimi_linear_decode", sizes)
    layer, x = model.blocks[0].attn, reference.norm(token, model.blocks[0].attn_norm)
    with torch.no_grad():
        out, new_memory, new_windows = layer(x, memory[0], windows[0])
    mixed = []
    for i, part in enumerate((layer.q_proj, layer.k_proj, layer.v_proj)):
        raw = (x.double() @ part.weight().double()).bfloat16().double()
        assert torch.equal(new_windows[i, 1], windows[0, i, 2])
        y = sum(windows[0, i, j].double() * layer.conv_w[i, :, j].double() for j in range(3))
        y = y + raw * layer.conv_w[i, :, 3].double()
        mixed.append(y / (1 + (-y).exp()))
    q, k, v = mixed[0] / 128**0.5, mixed[1], mixed[2]
    gate = x.double() @ layer.g_proj.weight().double()
    rate = torch.sigmoid((layer.beta_proj.weight.double() @ x.double())[0])
    state = memory[0, 0].double() / (1 + gate.exp())[:, None]
    state = state + torch.outer(k, rate * (v - state.T @ k))
    expect_close(new_memory[0], state.detach())
    expect_close(out, (q @ state @ layer.o_proj.weight().double()).detach(), rtol=0.03)


def test_two_convolution_steps_equal_one_pass_over_the_committed_tokens():
    reference, model, (rows, weight, pages, slots, accepted) = drawn("verify/01_conv_update", {"H": 1, "S": 4, "B": 2})
    history = [reference.columns_of(pages, 4, 384)[slots[n, 0], accepted[n] - 1 :][:3].clone() for n in range(2)]
    model(rows, weight, pages, slots, accepted)
    took = torch.tensor([1, 3], dtype=torch.int32)
    later = torch.randn_like(rows)
    out = model(later, weight, pages, slots, took)
    for n in range(2):
        first, second = (part.view(2, 4, -1)[n, :, :384] for part in (rows, later))
        stream = torch.cat((history[n], first[: took[n]], second)).double()
        for t in range(4):
            y = (stream[int(took[n]) + t :][:4] * weight.double().T).sum(0)
            expect_close(out.view(2, 4, -1)[n, t], y / (1 + (-y).exp()))


def test_a_null_request_leaves_all_pages_as_they_were():
    _, model, (rows, weight, pages, slots, accepted) = drawn("verify/01_conv_update", {"H": 1, "S": 2, "B": 2})
    before, null = pages.clone(), slots.clone()
    null[0] = 0
    model(rows, weight, pages, null, accepted)
    changed = (pages != before).any(dim=1).nonzero().flatten().tolist()
    assert changed == [int(slots[1, 0])]


def test_two_recurrent_steps_equal_one_pass_over_the_committed_tokens():
    reference, model, inputs = drawn("verify/02_kda_recurrence", {"H": 1, "S": 2, "B": 1})
    mixed, rows, raw_g, a_log, dt_bias, pages, slots, accepted = inputs
    state = reference.states_of(pages, 1)[slots[0, int(accepted) - 1], 0].double()
    model(*inputs)
    again = [torch.randn_like(part) for part in (mixed, rows, raw_g)]
    out = model(*again, a_log, dt_bias, pages, slots, torch.tensor([1], dtype=torch.int32))
    stream = [(mixed, rows, raw_g, 0), (*again, 0), (*again, 1)]
    answers = []
    for m, r, g, t in stream:
        q, k, v = m[t].double().view(3, 128)
        q, k = q / (q.norm() * 128**0.5), k / k.norm()
        decay = (-5 / (1 + (-a_log.double().exp() * (g[t, 0].double() + dt_bias.double())).exp())).exp()
        state = state * decay
        rate = torch.sigmoid(reference.rates_of(r, 1)[t, 0].double())
        state = state + torch.outer(rate * (v - state @ k), k)
        answers.append(state @ q)
    expect_close(out[:, 0], torch.stack(answers[1:]))
    expect_close(reference.states_of(pages, 1)[slots[0, 1], 0], state, rtol=1e-4)


def test_a_curve_is_judged_by_its_level_and_its_climb():
    reference = load_file(DECKS / "mega" / "01_rl_grid_ppo" / "reference.py", "reference")
    wanted = torch.linspace(0.1, 4.0, 40)
    assert list(reference.compared_parts([], wanted, wanted * 0.9))
    for wrong in (wanted * 0.5, wanted.flip(0), torch.full_like(wanted, 3.8), wanted[:20], wanted * float("nan")):
        with pytest.raises(ValueError, match=r"curve|returns"):
            list(reference.compared_parts([], wanted, wrong))


@pytest.mark.skipif(not os.environ.get("PROOFLINE_SLOW"), reason="trains for a while; set PROOFLINE_SLOW to run it")
def test_training_improves_the_return():
    reference = load_bound("mega/01_rl_grid_ppo", {"total_env_steps": 16 * 32 * 16, "envs": 16})
    torch.manual_seed(0)
    curve = reference.Model(*reference.get_init_inputs())(*reference.get_inputs())
    assert len(curve) == 16
    assert float(curve[-4:].mean()) > 2 * float(curve[:4].mean())
