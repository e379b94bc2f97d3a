"""What a bundle may hold, and the plan of calls."""

import random

import pytest

from grading.problem import load_problem
from grading.runner.job import BASELINE_MARK
from grading.warden.bundles import bundle_of_archive, bundle_of_file
from grading.warden.intake import bundle_digest, take_in
from grading.warden.plan import FULL, FULL_GPU, QUICK, Cost, effort_of, fit, plan_battery
from tests.factories import write_archive

PROBLEM = load_problem("hard", "01_fp8_gemm")
SOURCE = b"import torch\n"


@pytest.mark.parametrize(
    "path",
    [
        "../up.py",
        "/abs.py",
        "__pycache__/reference.cpython-311.pyc",
        "helper.pyc",
        "kernel.so",
        "sitecustomize.py",
        "torch.py",
        "problem.yaml",
        "check.py",
        "deep/reference.py",
        ".hidden.py",
        "data.pth",
        "bad\nname.py",
    ],
)
def test_a_file_that_does_not_belong_is_refused(path: str) -> None:
    intake = take_in(PROBLEM, {"solution.py": SOURCE, path: b"x"}, is_exempt=False)
    assert len(intake.refused) == 1


def test_bytecode_under_a_sources_name_is_refused() -> None:
    assert take_in(PROBLEM, {"solution.py": b"\xa7\r\r\n\x00"}, is_exempt=False).refused
    assert take_in(PROBLEM, {"helper.py": SOURCE}, is_exempt=False).refused == ["bundle lacks solution.py"]


def test_sources_and_helpers_are_taken() -> None:
    files = {"solution.py": SOURCE, "kernel.cu": b"// cuda\n", "lib/helper.py": SOURCE, "notes.md": b"x"}
    intake = take_in(PROBLEM, files, is_exempt=False)
    assert (intake.refused, intake.forbidden) == ([], [])
    assert intake.digest == bundle_digest(dict(reversed(files.items())))


def test_forbidden_calls_are_found_in_parsed_code_only() -> None:
    said = b"# torch._scaled_mm is never used here\nimport torch\n"
    used = b"import torch\n\n\ndef f(a, b):\n    return torch._scaled_mm(a, b)\n"
    assert take_in(PROBLEM, {"solution.py": said}, is_exempt=False).forbidden == []
    assert take_in(PROBLEM, {"solution.py": used}, is_exempt=False).forbidden == ["torch._scaled_mm (solution.py:5)"]
    assert take_in(PROBLEM, {"solution.py": used}, is_exempt=True).forbidden == []


def test_a_folder_is_a_bundle_and_a_link_in_it_is_not(tmp_path) -> None:
    (tmp_path / "solution.py").write_bytes(SOURCE)
    (tmp_path / "helper.py").write_bytes(SOURCE)
    assert sorted(bundle_of_file(tmp_path, "m").files) == ["helper.py", "solution.py"]
    (tmp_path / "link.py").symlink_to("helper.py")
    with pytest.raises(Exception, match=r"link\.py is a link"):
        bundle_of_file(tmp_path, "m")


CASES = {"structural": ["a", "b"], "camouflage": ["a"], "exact": ["whole"], "stress": ["small"]}


def test_a_baselines_archive_may_use_what_submissions_may_not(tmp_path) -> None:
    problem = load_problem("hard", "05_topk_bitonic")
    text = f"{BASELINE_MARK}\nimport torch\n\ntorch.sort(torch.zeros(1))\n"
    for harness, is_exempt in (("baseline", True), ("codex", False)):
        folder = write_archive(tmp_path / harness, problem_id=problem.id, harness=harness, solution=text)
        bundle = bundle_of_archive(problem, folder)
        assert bundle.is_exempt is is_exempt
        assert bool(take_in(problem, bundle.files, is_exempt=bundle.is_exempt).forbidden) is not is_exempt


def test_a_plan_holds_every_probe_and_follows_its_seed() -> None:
    plan = list(plan_battery(QUICK, CASES, random.Random(1)))
    again = list(plan_battery(QUICK, CASES, random.Random(1)))
    other = list(plan_battery(QUICK, CASES, random.Random(2)))
    assert plan == again != other
    groups = {step.group for step in plan}
    probes = {"fresh", "timed", "rotated", "stress", "structural", "camouflage", "exact", "same_storage"}
    assert groups >= probes | {"silent_rewrite", "edit", "addresses", "renewed", "repeat", "recalled", "new_weights"}
    assert sum(step.group == "timed" for step in plan) == QUICK.timed + 1


def test_no_call_can_be_told_from_a_timed_one_by_its_place() -> None:
    places = [
        next(i for i, s in enumerate(plan_battery(QUICK, CASES, random.Random(n))) if s.kind == "edit")
        for n in range(40)
    ]
    assert max(places) - min(places) > 20


def test_calls_are_fewer_where_the_reference_is_slow_and_none_is_left_out() -> None:
    assert fit(FULL, Cost(5.0, 5.0), CASES) == FULL
    assert fit(FULL_GPU, Cost(0.005, 0.005), CASES) == FULL_GPU
    slow, heavy = fit(FULL_GPU, Cost(1.0, 0.1), CASES), fit(FULL_GPU, Cost(0.005, 0.2), CASES)
    assert (slow.timed, slow.edits, slow.seeds, slow.as_deck, slow.unheld) == (24, 6, 2, 6, 4)
    assert (heavy.edits, heavy.seeds) == (FULL_GPU.edits, FULL_GPU.seeds)
    assert 24 < heavy.timed < FULL_GPU.timed
    groups = [{step.group for step in plan_battery(effort, CASES, random.Random(1))} for effort in (slow, FULL_GPU)]
    assert groups[0] == groups[1]


def test_a_full_grade_does_more_than_a_quick_one() -> None:
    for device in ("cpu", "cuda:0"):
        quick, full = effort_of("quick", device), effort_of("full", device)
        assert (quick.passes, full.passes) == (1, 2)
        assert full.timed > quick.timed
    assert FULL.edits == 20
