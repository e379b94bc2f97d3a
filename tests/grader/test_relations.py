"""P15: relations that need no reference, asked of the references themselves.

A candidate's every answer is held against its reference, so it obeys up to two gates whatever the reference obeys. What
a relation can still find is a fault of the judge.
"""

from collections.abc import Callable
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="references need PyTorch")
from torch import Tensor  # noqa: E402

from grading.cpushapes import shapes_for  # noqa: E402
from grading.oracle.contents import Content  # noqa: E402
from grading.oracle.gates import compare, gate_for  # noqa: E402
from grading.problem import load_problem  # noqa: E402
from grading.survey.bench import Bench  # noqa: E402
from grading.survey.items import gradeable_problems  # noqa: E402

Parts = list[Tensor]
# Inputs, and what follows for the answer's parts; the model may be changed too.
Relation = Callable[[ModuleType, torch.nn.Module, Parts], tuple[Parts, Callable[[Parts], Parts]]]


def order_of(count: int) -> Tensor:
    """Return an order that is not the present one."""
    assert count > 1
    order = torch.randperm(count, generator=torch.Generator().manual_seed(5))
    return order if bool((order != torch.arange(count)).any()) else order.roll(1)


def permuted(*places: int, dim: int = 0, out: int | None = 0) -> Relation:
    """Permute a dimension of some inputs: the answer's dimension ``out`` follows, or with None nothing changes."""

    def relation(module: ModuleType, model: torch.nn.Module, inputs: Parts) -> tuple[Parts, Callable[[Parts], Parts]]:
        order = order_of(inputs[places[0]].shape[dim])
        moved = [t.index_select(dim, order) if i in places else t for i, t in enumerate(inputs)]
        return moved, lambda parts: parts if out is None else [part.index_select(out, order) for part in parts]

    return relation


def scaled(place: int) -> Relation:
    """Double an input: the answer doubles, exactly."""

    def relation(module: ModuleType, model: torch.nn.Module, inputs: Parts) -> tuple[Parts, Callable[[Parts], Parts]]:
        larger = [(t.float() * 2).to(t.dtype) if i == place else t for i, t in enumerate(inputs)]
        return larger, lambda parts: [(part.float() * 2).to(part.dtype) for part in parts]

    return relation


def later_tokens_do_not_matter(module, model, inputs):
    """hard 02: what stands before a token is what it was, whatever comes after."""
    half = inputs[0].shape[1] // 2
    changed = [tensor.clone() for tensor in inputs]
    for tensor in changed:
        tensor[:, half:] = tensor[:, half:].flip(1)
    return changed, lambda parts: [parts[0][:, :half]]


def pages_elsewhere(module, model, inputs):
    """hard 03: pages may lie anywhere, as long as the table says where."""
    query, cache, table, lengths = inputs
    order = order_of(cache.shape[0])
    return [query, cache[order], order.argsort()[table.long()].int(), lengths], lambda parts: parts


def values_twice_as_large(module, model, inputs):
    """hard 03: the answer is linear in the values, the second half of each cached row."""
    query, cache, table, lengths = inputs
    keys, values = cache.chunk(2, dim=-1)
    return [query, torch.cat((keys, 2 * values), dim=-1), table, lengths], lambda parts: [2 * parts[0]]


def columns_elsewhere(module, model, inputs):
    """hard 05: the values stay, and the places move along."""
    order = order_of(inputs[0].shape[1])
    return [inputs[0][:, order]], lambda parts: [parts[0], order.argsort()[parts[1]]]


def experts_elsewhere(module, model, inputs):
    """hard 06: experts may stand in any order, with their rows."""
    rows, offsets = inputs
    order = order_of(len(offsets) - 1)
    pieces = list(torch.arange(len(rows)).split(offsets.diff().tolist()))
    moved = torch.cat([pieces[expert] for expert in order])
    counts = torch.tensor([len(pieces[expert]) for expert in order])
    for weight in (model.W_gate, model.W_up):
        weight.copy_(weight[order])
    return [rows[moved], torch.cat((torch.zeros(1), counts.cumsum(0))).int()], lambda parts: [parts[0][moved]]


def columns_of_the_weight_elsewhere(module, model, inputs):
    """hard 07: the weight's columns are the answer's."""
    order = order_of(model.w_q.shape[1])
    for name in ("w_q", "scales", "zeros"):
        getattr(model, name).copy_(getattr(model, name)[:, order])
    return inputs, lambda parts: [parts[0][:, order]]


def routed_experts_elsewhere(module, model, inputs):
    """cuda 01: experts are numbers."""
    x, numbers, weights = inputs
    order = order_of(model.w1_routed.shape[0])
    for weight in (model.w1_routed, model.w2_routed):
        weight.copy_(weight[order])
    return [x, order.argsort()[numbers], weights], lambda parts: parts


def games_elsewhere(module, model, inputs):
    """cuda 04: games stand beside each other, and share nothing but that one hit moves all generators."""
    obs, state, *games = inputs
    order = order_of(len(games[0]))
    return [obs, state, *(part[order] for part in games)], lambda parts: [*parts[:3], *(p[order] for p in parts[3:])]


def ranked_experts_elsewhere(module, model, inputs):
    """mega 02: the router's rows and its experts move together."""
    for block in model.blocks:
        moe, order = block.moe, order_of(module.n_experts)
        moe.router.weight.copy_(moe.router.weight[order])
        for stack in (moe.gate, moe.up, moe.down):
            for name in ("w_q", "scales", "zeros"):
                getattr(stack, name).copy_(getattr(stack, name)[order])
    return inputs, lambda parts: parts


def requests_elsewhere(*by_token: int) -> Relation:
    """verify: requests may come in any order; their pages stay where they are."""

    def relation(module: ModuleType, model: torch.nn.Module, inputs: Parts) -> tuple[Parts, Callable[[Parts], Parts]]:
        order = order_of(module.B)
        tokens = (order[:, None] * module.S + torch.arange(module.S)).flatten()
        *front, slots, accepted = [t[tokens] if i in by_token else t for i, t in enumerate(inputs)]
        return [*front, slots[order], accepted[order]], lambda parts: [parts[0][tokens], *parts[1:]]

    return relation


RELATIONS: dict[str, dict[str, Relation]] = {
    "hard/01_fp8_gemm": {"rows": permuted(0), "scale": scaled(0)},
    "hard/02_kda_cutlass": {
        "heads": permuted(0, 1, 2, 3, 4, dim=2, out=2),
        "linear in v": scaled(2),
        "causal": later_tokens_do_not_matter,
    },
    "hard/03_paged_attention": {
        "sequences": permuted(0, 2, 3),
        "pages": pages_elsewhere,
        "linear in values": values_twice_as_large,
    },
    "hard/05_topk_bitonic": {"rows": permuted(0), "columns": columns_elsewhere},
    "hard/06_sonic_moe_swiglu": {"experts": experts_elsewhere},
    "hard/07_w4a16_gemm": {"rows": permuted(0), "scale": scaled(0), "columns": columns_of_the_weight_elsewhere},
    "cuda/01_glm52_fused_moe": {"tokens": permuted(0, 1, 2), "experts": routed_experts_elsewhere},
    "cuda/02_deepseek_nsa": {"heads": permuted(0, 1, 2, dim=1, out=1), "linear in v": scaled(2)},
    # Cached rows have their positions inside: attention does not ask where they stand.
    "cuda/03_megaqwen_decode": {"cached rows": permuted(2, 3, dim=2, out=None)},
    "cuda/04_grid_mingru_sps": {"games": games_elsewhere},
    "mega/02_kimi_linear_decode": {
        "cached rows": permuted(3, 4, out=None),
        "experts": ranked_experts_elsewhere,
    },
    "verify/01_conv_update": {"requests": requests_elsewhere(0)},
    "verify/02_kda_recurrence": {"requests": requests_elsewhere(0, 1, 2)},
}
# Its answer is a curve of learning, not a function of inputs.
WITHOUT = {"mega/01_rl_grid_ppo"}


def test_every_problem_has_a_relation():
    assert set(RELATIONS) | WITHOUT == {problem.key for problem in gradeable_problems()}


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, known in RELATIONS.items() for name in known])
def test_a_reference_obeys_a_relation(key: str, name: str):
    problem = load_problem(*key.split("/"))
    bench = Bench(problem, shapes_for(problem, "cpu")[0], "cpu")
    inputs = bench.source.draw("nominal", "", 0).inputs
    with torch.no_grad():
        before = bench.call(bench.oracle, Content(inputs))
        assert all(part.float().abs().max() > 0 for part in before)
        changed, follow = RELATIONS[key][name](bench.reference, bench.oracle, inputs)
        after = bench.call(bench.oracle, Content(changed))
        assert changed is inputs or any(not torch.equal(one, other) for one, other in zip(changed, inputs, strict=True))
        for wanted, found in zip(follow(before), after, strict=True):
            shown = found[tuple(slice(size) for size in wanted.shape)]
            assert compare(wanted, shown, gate_for(key, str(wanted.dtype).removeprefix("torch."))).bad == 0
