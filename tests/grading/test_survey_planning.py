"""Surveys: what an item is expected to take, what is done within a budget, and what a plan says."""

import hashlib
import json
from pathlib import Path

import pytest

from grading.problem import DECKS, load_problem
from grading.survey import grades
from grading.survey.__main__ import main
from grading.survey.book import Book, Budget, Entry, Item, Survey
from grading.survey.items import told_solutions

ROOT = DECKS.parents[1]
RECORDED = ROOT / "leaderboard" / "recordings" / "h200"
TOPK = "hard/05_topk_bitonic"


def make_entry(key: str, seconds: float, kind: str = "", **changes) -> Entry:
    """Return an entry of ``a/1/kernel``, or of the whole problem ``a/1``."""
    deck, problem, *solution = key.split("/")
    fields = {"attempt": 1, "digest": "d", "state": "done", "at": "", "result": {"kind": kind} if kind else None}
    return Entry(problem=f"{deck}/{problem}", solution="/".join(solution), seconds=seconds, **(fields | changes))


def make_item(key: str, kind: str = "") -> Item:
    deck, problem, *solution = key.split("/")
    return Item(f"{deck}/{problem}", "/".join(solution), "d", kind=kind)


def make_book(path: Path, *entries: Entry, **changes) -> Book:
    book = Book(path / "x.json", "x", "cpu", **changes)
    for entry in entries:
        book.add(entry)
    return book


def plan(out: Path, *arguments: str) -> int:
    return main(["grades", "--plan", "--device", "cuda:0", "--gpu", "H200", "--out", str(out), *arguments])


@pytest.mark.parametrize(
    ("key", "kind", "seconds"),
    [
        ("a/1/kernel", "right", 300.0),
        ("a/1/eager", "right", 300.0),
        ("a/1/skips", "wrong", 30.0),
        ("b/2/vendor", "right", 60.0),
        ("b/2/eager", "right", 60.0),
        ("b/2/cheat_zeros", "cheat", 60.0),
        ("b/2/compiled", "right", 100.0),
        ("b/2/skips", "wrong", 25.0),
        ("c/3/kernel", "right", 200.0),
        ("c/3/vendor", "right", 60.0),
        ("c/3/compiled", "right", 90.0),
        ("d/4", "", 7.0),
        ("e/5", "", 7.0),
    ],
)
def test_an_item_is_expected_to_take_what_its_like_take(tmp_path, key, kind, seconds):
    book = make_book(
        tmp_path,
        make_entry("a/1/kernel", 300.0, "right"),
        make_entry("a/1/forgets", 30.0, "wrong"),
        make_entry("b/2/kernel", 100.0, "right"),
        make_entry("b/2/vendor", 60.0, "right"),
        make_entry("c/3/drops", 20.0, "wrong"),
        make_entry("d/4", 7.0),
        unknown_seconds=90.0,
    )
    assert book.expected_seconds(make_item(key, kind)) == seconds


def test_a_result_that_names_no_kind_tells_the_cost_by_the_solution(tmp_path):
    book = make_book(tmp_path, make_entry("a/1/kernel", 50.0), make_entry("b/2/vendor", 9.0))
    assert book.expected_seconds(make_item("b/2/kernel", "right")) == 9.0
    assert book.expected_seconds(make_item("c/3/kernel", "right")) == 50.0


def test_what_was_stopped_is_expected_to_take_longer_and_what_failed_tells_no_cost(tmp_path):
    book = make_book(
        tmp_path,
        make_entry("a/1/kernel", 300.0, "right", result=None, state="cut"),
        make_entry("a/1/vendor", 20.0, result=None, state="cut"),
        make_entry("a/1/eager", 40.0, "right"),
        make_entry("a/1/compiled", 0.1, result=None, state="failed"),
    )
    expected = [book.expected_seconds(make_item(f"a/1/{name}", "right")) for name in ("kernel", "vendor", "compiled")]
    assert expected == [300.0, 40.0, 40.0]


def test_what_does_not_fit_is_named_with_its_time_and_the_next_that_does_is_measured(tmp_path, capsys):
    book = make_book(tmp_path, make_entry("a/1/kernel", 300.0, "right"), make_entry("a/1/forgets", 30.0, "wrong"))
    items = [make_item(f"a/1/{name}", kind) for name, kind in (("eager", "right"), ("skips", "wrong"))]
    assert Survey(book, Budget(100.0)).run(items, lambda *_: {"kind": "wrong"}) == 1
    assert "a/1/eager" not in book.entries and book.entries["a/1/skips"].state == "done"
    said = capsys.readouterr().err
    assert "[1/2] a/1/eager: left, takes about 300 s" in said
    assert "1 of 2 are left and take about 300 s" in said


def test_an_empty_folder_is_planned_by_what_a_grade_usually_takes(tmp_path, capsys):
    for tier, seconds in grades.UNKNOWN_SECONDS.items():
        assert plan(tmp_path, "--only", f"{TOPK}/kernel", "--tier", tier) == 3
        assert f"1 of 1 are missing and take about {seconds:.0f} s" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_plan_says_what_is_there_and_what_is_missing_in_the_order_of_grading(tmp_path, capsys):
    """It needs no GPU: the folder's is not here."""
    known = told_solutions(load_problem(*TOPK.split("/")))
    digests = {s.name: hashlib.sha256(f"{s.digest}\nfull".encode()).hexdigest() for s in known}
    book = Book(tmp_path / "grades.json", "grades", "cuda:0")
    kept = json.loads((RECORDED / "grades.json").read_text())["entries"]
    for name in ("kernel", "eager"):
        result = kept[f"{TOPK}/{name}"]["result"]
        book.add(make_entry(f"{TOPK}/{name}", 60.4, digest=digests[name], result=result))
    book.add(make_entry(f"{TOPK}/vendor", 1.0, digest=digests["vendor"], state="failed"))
    before = (tmp_path / "grades.json").read_bytes()
    assert plan(tmp_path, "--only", TOPK) == 3
    head, row, *missing, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["problem", "kernel", "vendor", "wrong", "eager", "compiled", "other"]
    assert row.split() == [TOPK, "verified", "failed", "90", "s", "verified", "60", "s", "60", "s"]
    left = [name for name in digests if name not in ("kernel", "eager", "vendor")]
    assert [line.split()[0] for line in missing] == [f"{TOPK}/{name}" for name in left]
    assert [line.split()[-2:] for line in missing] == [["90", "s"], ["150", "s"], ["211", "s"]]
    assert total == "3 of 6 are missing and take about 211 s"
    assert plan(tmp_path, "--only", f"{TOPK}/vendor", "--retry") == 3
    assert plan(tmp_path, "--only", f"{TOPK}/vendor") == 0
    assert (tmp_path / "grades.json").read_bytes() == before


def test_the_recorded_grades_can_be_planned(capsys):
    assert plan(RECORDED) in (0, 3)
    shown = capsys.readouterr().out
    assert all(
        entry["problem"] in shown for entry in json.loads((RECORDED / "grades.json").read_text())["entries"].values()
    )
