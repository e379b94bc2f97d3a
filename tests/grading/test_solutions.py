"""The solutions of the decks cuda, mega and verify against their references, in the grader's tolerances."""

import os
import tomllib
from pathlib import Path

import pytest

from grading.cpushapes import CPU_SHAPES
from grading.problem import DECKS

torch = pytest.importorskip("torch", reason="references are PyTorch; the web tier runs without it")

from tests.grading.judging import worst_errors  # noqa: E402

# Training takes minutes; the curve's own rule is tested in test_new_references.
SLOW = {"01_rl_grid_ppo"}
FASTER = {"cuda/03_megaqwen_decode": {"ctx_len": 70, "decode_steps": 2, "num_layers": 1}}
# What Triton must interpret here is tested in test_kernels, in processes of its own.
SOLUTIONS = sorted(
    path
    for deck in ("cuda", "mega", "verify")
    for path in DECKS.glob(f"{deck}/*/solutions/*/*.py")
    if "import triton" not in path.read_text()
)
PROBLEMS = sorted({path.parents[2] for path in SOLUTIONS} - {DECKS / "mega" / name for name in SLOW})


def name_of(path: Path) -> str:
    return "-".join(path.relative_to(DECKS).with_suffix("").parts[1:]).replace("solutions-", "")


@pytest.mark.parametrize("path", SOLUTIONS, ids=name_of)
def test_right_solutions_are_within_the_gate_and_wrong_ones_far_out(path: Path, monkeypatch) -> None:
    problem = path.parents[2]
    if problem.name in SLOW and not os.environ.get("PROOFLINE_SLOW"):
        pytest.skip("trains for minutes; set PROOFLINE_SLOW to run it")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    key = str(problem.relative_to(DECKS))
    errors = worst_errors(key, path, [FASTER.get(key, CPU_SHAPES[key][0])])
    if path.parent.name == "right":
        assert max(errors.values()) <= 1.0, errors
    else:
        assert path.read_text().startswith("# expect: incorrect\n")
        assert max(errors.values()) > 2.0, errors


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda path: path.name)
def test_the_calibration_names_honest_solutions_and_cheats_with_room_between(problem: Path) -> None:
    table = tomllib.loads((problem / "calibration.toml").read_text())
    honest = [entry["largest"] for entry in table["honest"]]
    cheats = [entry["largest"] for entry in table["cheat"]]
    assert len(honest) >= 2
    assert len(cheats) >= 3
    assert max(honest) <= 1.0 < min(cheats)
    for kind, entries in (("right", table["honest"]), ("wrong", table["cheat"])):
        for entry in entries:
            assert (problem / "solutions" / kind / f"{entry['name']}.py").exists() or entry["name"] == "kernel"
