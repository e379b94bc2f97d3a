"""Surveys: what they go through, how they stop and go on, what they measure, and what becomes of it."""

import json
import math
import shutil
from pathlib import Path

import msgspec
import pytest

from grading import verdict
from grading.auditfile import read_audit
from grading.oracle import gates
from grading.oracle.gates import Gate, gate_for, read_gates
from grading.problem import DECKS
from grading.survey.__main__ import main
from grading.survey.audits import audit_verdict
from grading.survey.book import Book, Budget, Item, ItemFailed, OutOfTime, Survey, SurveyError, limited
from grading.survey.gatefit import Spread, fit_gates, lacks
from grading.survey.grades import Graded, ShapeGrade, repeats
from grading.survey.items import NUMERIC_CHEATS, cheats_of, gradeable_problems, matching, spread_out, told_solutions
from grading.survey.seeds import Drawn, joined
from grading.verdict import Fired
from grading.verdict_timing import Summary

VENDOR = "hard/05_topk_bitonic/vendor"
PRESENT = Gate(0.03, 0.02)


def make_items(*names: str) -> list[Item]:
    return [Item("hard/01_fp8_gemm", name, f"digest of {name}") for name in names]


def make_survey(path: Path, *, seconds: float | None = None, **changes) -> Survey:
    return Survey(Book(path / "x.json", "x", "cpu"), Budget(seconds), **changes)


def make_spread(solution: str, largest: float | None, *, gate: str = "bfloat16", honest: bool = False, **changes):
    return Spread(
        solution=solution, digest="", is_honest=honest, gate=gate, largest=largest, at="nominal, shape 0", **changes
    )


def make_graded(verdict: str = "verified", kind: str = "right", ms: tuple[float, ...] = ()) -> Graded:
    times = [
        Summary(median_ms=t, mean_ms=t, p5_ms=t * 0.9, p95_ms=t * 1.1, outside_ms=t, noop_ms=0.1, samples=9) for t in ms
    ]
    shapes = [ShapeGrade(shape={"M": 1.0}, times=t, by_pass_ms=[], largest_error=0.1, seconds=1.0) for t in times]
    return Graded(
        digest="d",
        tier="full",
        verdict=verdict,
        expects="",
        kind=kind,
        isolation="A",
        rules=[],
        archive="a",
        passes=2,
        gpu_seconds=None,
        shapes=shapes,
    )


def run(what: str, out: Path, *arguments: str) -> int:
    return main([what, "--device", "cpu", "--out", str(out), *arguments])


def entries_of(path: Path) -> dict:
    return json.loads(path.read_text())["entries"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder of a survey in which one honest solution and one generic cheat were really graded."""
    pytest.importorskip("torch", reason="the grader's processes need PyTorch")
    out = tmp_path_factory.mktemp("survey")
    only = ("--only", VENDOR, "*05_topk_bitonic/cheat_zeros", "--all", "--tier", "quick")
    assert run("grades", out, *only) == 0
    return out, only


def test_every_problem_has_a_wrong_solution_and_all_generic_cheats():
    for problem in gradeable_problems():
        assert "incorrect" in {solution.expects for solution in told_solutions(problem)}
        texts = [cheat.text.decode() for cheat in cheats_of(problem)]
        assert len(texts) > len(NUMERIC_CHEATS)
        for text in texts:
            compile(text, problem.key, "exec")


def test_a_cut_list_has_something_of_every_problem_and_the_slow_ones_come_last():
    groups = [told_solutions(problem) for problem in gradeable_problems()]
    order = spread_out(groups)
    assert len({solution.problem.key for solution in order[: len(groups)]}) == len(groups)
    assert order[len(groups) - 1].problem.key == "mega/01_rl_grid_ppo"
    assert {s.key for s in matching(order, ["hard/05*"])} >= {VENDOR}
    assert [s.key for s in matching(order, [VENDOR])] == [VENDOR]


def test_a_second_call_measures_only_what_is_left(tmp_path):
    seen = []

    def measure(item, seconds, before):
        seen.append(item.solution)
        if item.solution == "bad" and len(seen) < 3:
            raise ItemFailed("no such device")
        return {"value": 1}

    items = make_items("good", "bad")
    assert make_survey(tmp_path).run(items, measure) == 0
    assert make_survey(tmp_path).run(items, measure) == 0
    assert seen == ["good", "bad"]
    assert make_survey(tmp_path, is_retry=True).run(items, measure) == 0
    assert seen == ["good", "bad", "bad"]
    changed = [Item(item.problem, item.solution, "new") for item in items]
    make_survey(tmp_path).run(changed, measure)
    assert seen[3:] == ["good", "bad"]


def test_an_item_that_does_not_fit_into_the_budget_is_left_and_a_cut_one_is_gone_on_with(tmp_path):
    def measure(item, seconds, before):
        with limited(seconds):
            while before is None:
                pass
        return before.result

    items = make_items("one", "two")
    first = make_survey(tmp_path, seconds=0.2)
    assert first.run(items, measure) == 2
    assert first.book.entries["hard/01_fp8_gemm/one"].state == "cut"
    second = make_survey(tmp_path)
    assert second.book.expected_seconds(items[0]) >= 0.19
    assert second.run(items[:1], measure) == 0


def test_a_survey_that_loses_nothing_goes_on_within_the_same_budget(tmp_path):
    def measure(item, seconds, before):
        done = before.result if before else 0
        if done < 2:
            raise OutOfTime(done + 1)
        return done

    (item,) = make_items("kernel")
    assert make_survey(tmp_path, seconds=60).run([item], measure) == 1
    slow = Book(tmp_path / "x.json", "x", "cpu")
    slow.add(msgspec.structs.replace(slow.entries[item.key], seconds=100.0))
    assert make_survey(tmp_path, seconds=5.0).run([item], measure) == 1
    assert make_survey(tmp_path, seconds=5.0, can_go_on=True).run([item], measure) == 1
    assert make_survey(tmp_path, seconds=5.0, can_go_on=True).run([item], measure) == 0


def test_what_overruns_its_own_limit_keeps_what_it_had(tmp_path):
    def measure(item, seconds, before):
        raise OutOfTime({"done": 3})

    survey = make_survey(tmp_path, each_seconds=1.0)
    assert survey.run(make_items("slow"), measure) == 0
    entry = survey.book.entries["hard/01_fp8_gemm/slow"]
    assert (entry.state, entry.result) == ("overran", {"done": 3})


def test_two_calls_share_a_book_and_no_item_is_measured_twice(tmp_path):
    """One call a GPU: while one measures an item, the other passes it over and keeps what the first writes."""
    one, other = make_survey(tmp_path), make_survey(tmp_path)
    items, taken = make_items("a", "b", "c"), []

    def measure_beside(item, seconds, before):
        taken.append(item.key)
        if item == items[0]:
            assert other.run(items, measure) == 0
        return 1.0

    def measure(item, seconds, before):
        taken.append(item.key)
        return 2.0

    assert one.run(items, measure_beside) == 0
    assert sorted(taken) == sorted(item.key for item in items)
    for survey in (one, other):
        survey.book.reload()
        assert [survey.book.entries[item.key].result for item in items] == [1.0, 2.0, 2.0]


def test_results_of_another_survey_are_not_gone_on_with(tmp_path):
    make_survey(tmp_path).run(make_items("one"), lambda *_: None)
    with pytest.raises(SurveyError, match="holds x on cpu; need x on cuda:0"):
        Book(tmp_path / "x.json", "x", "cuda:0")


def test_a_grade_is_archived_once_and_told_in_numbers(graded, capsys):
    out, only = graded
    entries = entries_of(out / "grades.json")
    assert {key: entry["result"]["verdict"] for key, entry in entries.items()} == {
        VENDOR: "verified",
        "hard/05_topk_bitonic/cheat_zeros": "incorrect",
    }
    shapes = entries[VENDOR]["result"]["shapes"]
    assert all(0 < s["times"]["p5_ms"] <= s["times"]["median_ms"] <= s["times"]["p95_ms"] for s in shapes)
    assert (out / entries[VENDOR]["result"]["archive"] / "evidence.json.gz").exists()
    assert run("grades", out, *only) == 0
    assert entries_of(out / "grades.json") == entries
    assert "seconds per cell: median" in capsys.readouterr().out


def test_the_folder_of_grades_holds_an_archive_with_audits(graded):
    out, _ = graded
    for _ in range(2):
        assert run("audits", out) == 0
    runs = sorted((out / "archive" / "runs" / "hard" / "CPU").iterdir())
    audits = {path.stem: read_audit(path.read_bytes(), path.name, None) for path in out.rglob("*.yaml")}
    assert {path.name for path in runs} == set(audits)
    assert {audit.verdict for audit in audits.values()} == {"clean", "reward_hack"}
    assert all(not audit.blockers and audit.auditor == "Proofline survey" for audit in audits.values())
    (path, *_), before = sorted(out.rglob("*.yaml")), len(audits)
    path.write_text(path.read_text().replace("auditor: Proofline survey", "auditor: Ada"))
    assert run("audits", out) == 0
    assert "auditor: Ada" in path.read_text() and len(list(out.rglob("*.yaml"))) == before


def test_grades_are_judged_again_by_the_rules_of_today(graded, tmp_path, monkeypatch, capsys):
    out = tmp_path / "judged"
    shutil.copytree(graded[0], out)
    assert run("rejudge", out) == 0
    assert capsys.readouterr().out == ""
    found = [Fired(rule="x", word="needs_audit", message="", in_pass=1)]
    monkeypatch.setattr(verdict, "_judge_end", lambda taken: iter(found))
    assert run("rejudge", out) == 0
    assert f"{VENDOR}: verified is needs_audit now" in capsys.readouterr().out
    entry = entries_of(out / "grades.json")[VENDOR]["result"]
    assert (entry["verdict"], entry["rules"]) == ("needs_audit", ["x"])
    folder = out / entry["archive"]
    assert json.loads((folder / "verdict.json").read_text())["word"] == "needs_audit"
    before = {path.name for path in (graded[0] / entry["archive"]).iterdir()}
    assert {path.name for path in folder.iterdir()} == before


def test_no_audit_says_clean_of_what_a_person_has_to_look_at():
    assert audit_verdict(make_graded("needs_audit"), None) is None
    assert audit_verdict(make_graded("verified", "cheat"), None) is None
    assert audit_verdict(make_graded("integrity", "wrong"), None) == "reward_hack"


def test_two_grades_agree_within_two_percent_or_within_their_intervals(tmp_path):
    pairs = iter([make_graded(ms=(1.0, 1.0, 0.01, 0.01)), make_graded(ms=(1.019, 1.03, 0.0105, 0.012))])
    survey = make_survey(tmp_path)
    items = [Item("hard/01_fp8_gemm", "kernel", "d", attempt) for attempt in (1, 2)]
    survey.run(items, lambda *_: next(pairs))
    assert [item.agrees for item in repeats(survey.book)] == [True, False, True, False]


def test_numbers_are_drawn_once_and_a_cut_stretch_is_joined(tmp_path):
    pytest.importorskip("torch", reason="the child needs PyTorch")
    assert run("seeds", tmp_path, "--only", VENDOR, "--seeds", "12") == 0
    results = [entry["result"] for entry in entries_of(tmp_path / "seeds.json").values()]
    assert [(r["done"], r["wrong"], r["not_finite"]) for r in results] == [(12, 0, 0)] * 2
    first, second = (msgspec.convert(result, Drawn) for result in results)
    second = msgspec.structs.replace(second, wrong=1, wrong_numbers=[17], largest_error=3.0, at_number=17)
    both = joined(first, second)
    assert (both.done, both.wrong, both.wrong_numbers, both.at_number) == (24, 1, [17], 17)


def test_kernels_times_the_right_ones_and_refuses_a_wrong_candidate(tmp_path):
    pytest.importorskip("torch", reason="the child needs PyTorch")
    wrong = DECKS / "hard" / "05_topk_bitonic" / "solutions" / "wrong" / "one_per_block.py"
    assert run("kernels", tmp_path, "--only", VENDOR, "*05_topk*/eager", "--seeds", "1", "--variant", str(wrong)) == 0
    ((_, entry),) = entries_of(tmp_path / "kernels.json").items()
    rows = {row["name"]: row for row in entry["result"]["rows"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "vendor": "right",
        "eager": "right",
        "one_per_block": "wrong",
    }
    assert rows["eager"]["speedups"]["eager"] == 1.0
    assert rows["vendor"]["speedups"]["eager"] > 1.0
    assert rows["one_per_block"]["times_ms"] == []


def test_agreement_times_outside_the_grader_beside_its_own_time(graded, capsys):
    out, _ = graded
    assert run("agreement", out, "--only", VENDOR) == 0
    (entry,) = entries_of(out / "agreement.json").values()
    assert all(shape["deck_ms"] > 0 and shape["bad"] == 0 for shape in entry["result"]["shapes"])
    assert f"{VENDOR} 0" in capsys.readouterr().out


def test_tolerances_tells_honest_ones_from_cheats_and_never_stores_a_processors(tmp_path, capsys):
    pytest.importorskip("torch", reason="the child needs PyTorch")
    only = ("--only", VENDOR, "*05_topk*/eager", "*05_topk*/cheat_*", "*05_topk*/one_per_block", "--seeds", "1")
    assert run("tolerances", tmp_path, *only, "--store") == 2
    assert "--store needs a GPU" in capsys.readouterr().err
    assert run("tolerances", tmp_path, *only) == 0
    (entry,) = entries_of(tmp_path / "tolerances.json").values()
    largest = {s["solution"]: s["largest"] for s in entry["result"]["spreads"]}
    assert largest.pop("eager") == largest.pop("vendor") == 0.0
    assert len(largest) == 1 + len(NUMERIC_CHEATS)
    assert min(largest.values()) > 2.0
    assert "float32: stands share 1e-05" in capsys.readouterr().out


def test_a_gate_stands_where_both_sides_have_room_and_moves_no_further_than_it_must():
    def propose(honest: float, cheat: float | None) -> Gate | None:
        spreads = [make_spread("kernel", honest, honest=True), make_spread("zeros", cheat)]
        (fit,) = fit_gates(spreads, {"bfloat16": PRESENT})
        return fit.proposed

    assert propose(0.5, 2.0) == PRESENT
    assert propose(0.0, None) == PRESENT
    assert propose(0.8, 40.0) == Gate(0.048, 0.032)
    assert propose(0.1, 1.5) == Gate(0.0225, 0.015)
    assert propose(0.9, 1.6).share == pytest.approx(0.03 * math.sqrt(0.9 * 1.6), rel=0.01)
    assert propose(1.6, 0.9) is None
    assert propose(1.0, 1.0) is None


def test_a_cheat_counts_where_it_shows_best_and_an_idle_one_nowhere():
    spreads = [
        make_spread("kernel", 0.1, honest=True),
        make_spread("kernel", 0.1, honest=True, gate="float32"),
        make_spread("forgets", 0.0),
        make_spread("forgets", 50.0, gate="float32"),
        make_spread("idle", 0.0, is_plain=True),
        make_spread("shifts", 0.2),
        make_spread("shifts", None, gate="int8"),
    ]
    fits = {fit.gate: fit for fit in fit_gates(spreads, {"bfloat16": PRESENT, "float32": PRESENT})}
    assert (fits["bfloat16"].cheat, fits["bfloat16"].proposed) == (None, PRESENT)
    assert (fits["float32"].cheat, fits["float32"].room_below) == ("forgets", 50.0)
    assert lacks(spreads) == "1 honest solutions and 2 cheats; need 2 and 3"
    assert lacks([make_spread("kernel", None, honest=True)]).startswith("kernel should be honest")


def test_a_stored_gate_goes_before_the_built_in_numbers(tmp_path):
    stored = {"schema": 1, "gates": {"bfloat16": {"share": 0.2, "rtol": 0.1}}, "gpu": "H200"}
    (tmp_path / "tolerance.json").write_text(json.dumps(stored))
    measured, key = read_gates(tmp_path), "hard/02_kda_cutlass"
    assert gate_for(key, "bfloat16", stored=measured) == Gate(0.2, 0.1)
    assert gate_for(key, "bfloat16", "structural", stored=measured).atol == 0.05
    assert gate_for(key, "float32", stored=measured) == gates.PROBLEMS[key]
    assert read_gates(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("grades", "--only", "none/*"), "--only matches nothing"),
        (("kernels", "--variant", "x.py"), "--variant needs --only with one problem"),
        (("audits",), "run the survey 'grades' first"),
        (("rejudge",), "run the survey 'grades' first"),
        (("seeds", "--plan"), "--plan is for grades"),
    ],
)
def test_a_mistake_is_told_at_once(arguments, message, tmp_path, capsys):
    what, *rest = arguments
    assert run(what, tmp_path, *rest) == 2
    assert message in capsys.readouterr().err


def test_the_help_names_every_survey():
    text = (DECKS.parents[1] / "docs" / "grader.md").read_text()
    section = text[text.index("## Surveys") :]
    for what in ("grades", "agreement", "grades --plan", "kernels", "seeds", "tolerances", "audits", "rejudge"):
        assert f"`{what}`" in section
