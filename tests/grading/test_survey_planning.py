"""Surveys: what an item is expected to take, what a plan says, and what a cut or interrupted call leaves behind."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from grading.hardware import load_gpus
from grading.problem import DECKS, load_problem
from grading.survey import grades
from grading.survey.__main__ import main
from grading.survey.book import Book, Budget, Entry, Item, OutOfTime, Survey, write_json
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
    assert head.split() == ["problem", "kernel", "vendor", "wrong", "eager", "compiled"]
    assert row.split() == [TOPK, "verified", "failed", "90", "s", "verified", "60", "s"]
    left = [name for name in digests if name not in ("kernel", "eager", "vendor")]
    assert [line.split()[0] for line in missing] == [f"{TOPK}/{name}" for name in left]
    assert [line.split()[-2:] for line in missing] == [["90", "s"], ["150", "s"]]
    assert total == "2 of 5 are missing and take about 150 s"
    assert plan(tmp_path, "--only", f"{TOPK}/vendor", "--retry") == 3
    assert plan(tmp_path, "--only", f"{TOPK}/vendor") == 0
    assert (tmp_path / "grades.json").read_bytes() == before


def test_the_recorded_grades_can_be_planned(capsys):
    assert plan(RECORDED) in (0, 3)
    shown = capsys.readouterr().out
    assert all(
        entry["problem"] in shown for entry in json.loads((RECORDED / "grades.json").read_text())["entries"].values()
    )


def test_a_cut_item_leaves_no_verdict_and_is_tried_again_without_being_asked_to(tmp_path):
    def cut(*_):
        raise OutOfTime

    book, item = make_book(tmp_path), make_item("a/1/kernel", "right")
    assert Survey(book, Budget(5.0)).run([item], cut) == 1
    assert (book.entries[item.key].state, book.entries[item.key].result) == ("cut", None)
    assert Survey(book, Budget(None)).run([item], lambda *_: {"kind": "right"}) == 0
    assert book.entries[item.key].state == "done"


def test_a_cut_item_leaves_the_finished_one_of_an_earlier_source_in_its_place(tmp_path):
    def cut(*_):
        raise OutOfTime

    older = make_entry("a/1/kernel", 2.0, "right", digest="older")
    book, item = make_book(tmp_path, older), make_item("a/1/kernel", "right")
    assert Survey(book, Budget(5.0)).run([item], cut) == 1
    assert Book(book.path, "x", "cpu").entries == {item.key: older}


class FakeHost:
    is_dirty = False


def make_grader(out: Path, host: object) -> tuple[grades.Grader, Item]:
    solution = told_solutions(load_problem(*TOPK.split("/")))[0]
    known = {solution.key: solution}
    item = Item(TOPK, solution.name, solution.digest, kind="right")
    return grades.Grader(known, load_gpus()["CPU"], "cpu", "quick", out, host), item


def test_a_grade_that_is_cut_off_leaves_no_archive_and_no_oracle_in_the_middle_of_a_word(tmp_path, monkeypatch):
    host = FakeHost()
    grader, item = make_grader(tmp_path, host)
    monkeypatch.setattr(grades, "grade", lambda *_: sleep(5))
    with pytest.raises(OutOfTime):
        grader.measure(item, 0.05, None)
    assert host.is_dirty
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("at", ["pack_evidence", "write_archive"])
def test_an_archive_appears_whole_or_not_at_all(tmp_path, monkeypatch, at):
    def interrupt(*_):
        raise KeyboardInterrupt

    grader, item = make_grader(tmp_path / "out", FakeHost())

    class Done:
        def with_gpu_seconds(self, seconds):
            return self

    monkeypatch.setattr(grades, "grade", lambda *_: Done())
    monkeypatch.setattr(grades, "write_archive", lambda entry, out: (out / "x").mkdir() or out / "x")
    monkeypatch.setattr(grades, at, interrupt)
    with pytest.raises(KeyboardInterrupt):
        grader.measure(item, 60.0, None)
    assert list(tmp_path.rglob("*")) == [tmp_path / "out"]


def test_an_interrupted_write_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path, whole = tmp_path / "x.json", Path.write_bytes
    write_json(path, {"value": 1})

    def write_half(self, data):
        whole(self, data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(KeyboardInterrupt):
        write_json(path, {"value": 2})
    assert json.loads(path.read_text()) == {"value": 1}
    assert list(tmp_path.iterdir()) == [path]


WRITES = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)    # what starts in the background ignores it
from grading.survey.book import Book, Budget, Item, Survey
survey = Survey(Book(Path(sys.argv[1]), "x", "cpu"), Budget(None))
for number in range(10**6):
    survey.run([Item("a/1", "kernel", str(number))], lambda *_: ["x" * 100] * 5000)
    sys.stdout.write("" if number else "begun\\n")
    sys.stdout.flush()
"""


def test_an_interrupt_at_any_moment_leaves_a_whole_book(tmp_path):
    path = tmp_path / "x.json"
    for number in range(6):
        command = [sys.executable, "-c", WRITES, str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout.readline() == b"begun\n"
            sleep(0.05 + 0.013 * number)
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(20) != 0
            finally:
                process.kill()
        assert len(Book(path, "x", "cpu").entries) == 1
        assert list(tmp_path.iterdir()) == [path]
