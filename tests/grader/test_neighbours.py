"""P13: shapes beside the listed ones are drawn, asked about without a clock, and never more than noted."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from grading.evidence import Neighbour, PassEvidence, read_evidence, shape_label
from grading.neighbours import Move, choose_neighbours, find_neighbours, load_moves
from grading.problem import DECKS, load_decks
from grading.tomldata import CatalogueError
from grading.verdict import judge, outcome_of
from grading.warden.grade import how_many_neighbours
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import FULL, FULL_GPU
from tests.grader.made import make_call, make_evidence, make_pass, make_shape
from tests.grader.support import TINY, grade_source

LISTED = [{"M": 32, "N": 48, "K": 64}, {"M": 16, "N": 32, "K": 128}]
MODEL = """
import os, torch
from shapes import SHAPES
from torch import nn

class Model(nn.Module):
    def __init__(self, M, N, K):
        super().__init__()
        if N % 2:
            raise ValueError(f"N is {N}; need an even number")
        self.is_listed = {"M": M, "N": N, "K": K} in SHAPES
        self.weight = nn.Parameter(torch.empty(K, N, dtype=torch.bfloat16))

    def forward(self, x):
        assert self.is_listed or x.shape[1] % 2
        return ((x.float() @ self.weight.float()) * (1 + x.shape[1] % 2)).bfloat16()
"""


def make_neighbour(*calls, ended: str = "complete") -> Neighbour:
    return Neighbour(shape={"M": 33.0, "N": 48.0}, ended=ended, detail="", calls=list(calls))


def test_fewer_neighbours_are_asked_about_where_calls_are_slow() -> None:
    def seconds_each(value: float) -> PassEvidence:
        return make_pass(1, make_shape(*[make_call()] * 20, took_s=20 * value))

    counts = [how_many_neighbours(FULL_GPU, seconds_each(value)) for value in (0.01, 0.7, 9.0)]
    assert counts == [FULL_GPU.neighbours, 2, 1]
    assert how_many_neighbours(FULL, seconds_each(9.0)) == FULL.neighbours


def test_neighbours_are_one_move_away_and_none_is_listed() -> None:
    moves = [Move(name="M", by=[-16, 1], times=[0.5], least=2), Move(name="K", by=[-64, 64], least=64, multiple=64)]
    assert find_neighbours(LISTED[:1], moves) == [
        {"M": 16, "N": 48, "K": 64},
        {"M": 33, "N": 48, "K": 64},
        {"M": 32, "N": 48, "K": 128},
    ]
    assert find_neighbours([{"M": 1}, {"M": 2}], [Move(name="M", by=[-1, 1])]) == [{"M": 3}]


def test_the_draw_follows_from_the_seed_and_takes_what_there_is() -> None:
    moves = [Move(name=name, by=[-1, 1]) for name in "MNK"]
    drawn = {str(choose_neighbours(LISTED, moves, 3, str(seed))) for seed in range(20)}
    assert len(drawn) > 10
    assert choose_neighbours(LISTED, moves, 3, "a") == choose_neighbours(LISTED, moves, 3, "a")
    assert len(choose_neighbours(LISTED, moves, 99, "a")) == 12
    assert choose_neighbours(LISTED, [], 3, "a") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "Q"\nby = [1]', r"moves\[0\].name is 'Q'; accepted are M, N"),
        ('name = "M"', "needs a step or a factor"),
        ('name = "M"\nby = [3]\nmultiple = 2', "steps that are multiples"),
        ('name = "M"\ntimes = [0.0]', "factors > 0"),
        ('name = "M"\nstep = 1', "step"),
    ],
)
def test_a_file_with_a_fault_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "neighbours.toml").write_text(f"[[moves]]\n{text}\n")
    with pytest.raises(CatalogueError, match=message):
        load_moves(tmp_path, ["M", "N"])


def test_every_problem_with_free_sizes_has_neighbours() -> None:
    counts = {}
    for deck in load_decks().values():
        for problem in deck.problems.values():
            moves = load_moves(DECKS / deck.id / problem.id, problem.shape_names)
            counts[problem.key] = len(find_neighbours(problem.shapes, moves))
    assert {key for key, count in counts.items() if count >= 4} >= {
        f"hard/{name}" for name in load_decks()["hard"].problems
    }
    assert counts["mega/01_rl_grid_ppo"] == 0


def test_a_candidate_is_told_the_listed_shapes_and_may_refuse_err_or_be_wrong(host: OracleHost) -> None:
    done = grade_source("M", MODEL, host, effort=replace(TINY, neighbours=9), shapes=LISTED[:1])
    seen = {shape_label(item.shape): outcome_of(item) for item in done.evidence.neighbours}
    assert seen == {"M=33 N=48 K=64": "refused", "M=32 N=49 K=64": "refused", "M=32 N=48 K=63": "wrong"}
    assert [(item.rule, item.word) for item in done.verdict.fired] == [("P13.neighbour", "verified_note")]
    assert done.verdict.word == "verified_note"
    assert len(done.evidence.passes) == 1
    again = judge(read_evidence(msgspec.json.encode(done.evidence)))
    assert again == done.verdict


def test_a_candidate_that_dies_beside_the_listed_shapes_keeps_its_verdict(host: OracleHost) -> None:
    source = MODEL.replace("assert self.is_listed or x.shape[1] % 2", "self.is_listed or os._exit(3)")
    done = grade_source("M", source, host, effort=replace(TINY, neighbours=9), shapes=LISTED[:1])
    outcomes = [outcome_of(item) for item in done.evidence.neighbours]
    assert sorted({"refused", *outcomes}) == ["crashed", "refused", "unreached"]
    assert outcomes.count("crashed") == 1
    assert done.verdict.rules() == {"P13.neighbour"}
    assert [taken.ended for taken in done.evidence.passes] == ["complete"]


def test_a_grade_whose_time_is_up_keeps_all_but_the_shapes_beside(host: OracleHost) -> None:
    # A survey on an H200 cut a grade off in its neighbours and lost six minutes of evidence.
    done = grade_source("M", MODEL, host, effort=replace(TINY, neighbours=9), shapes=LISTED[:1], until=0.0)
    assert {outcome_of(item) for item in done.evidence.neighbours} == {"unreached"}
    assert [taken.ended for taken in done.evidence.passes] == ["complete"]


@pytest.mark.parametrize(
    ("neighbour", "outcome"),
    [
        (make_neighbour(make_call(), make_call()), "right"),
        (make_neighbour(make_call(), make_call(bad=1, ratio=2.0)), "wrong"),
        (make_neighbour(make_call(), make_call(fault="raised", fault_text="x")), "wrong"),
        (make_neighbour(make_call(ratio=float("nan"))), "wrong"),
        (make_neighbour(make_call(fault="raised", fault_text="x")), "refused"),
        (make_neighbour(ended="build"), "refused"),
        (make_neighbour(make_call(), ended="died"), "crashed"),
        (make_neighbour(ended="unreached"), "unreached"),
        (make_neighbour(make_call(), ended="oracle"), "unreached"),
    ],
)
def test_the_outcome_follows_from_what_was_seen(neighbour: Neighbour, outcome: str) -> None:
    assert outcome_of(neighbour) == outcome
    verdict = judge(make_evidence(neighbours=[neighbour]))
    assert verdict.word == ("verified_note" if outcome in ("wrong", "crashed") else "verified")
