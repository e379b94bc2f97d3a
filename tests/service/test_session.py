"""A job on the host's side: what the worker does with each answer, and what it leaves behind."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from grading import wire
from grading.host import gpus, session
from grading.host.child import Child
from grading.host.place import Found, LocalGpu, Place
from grading.host.session import Session
from grading.host.worker import tidy
from grading.parcel import find_kept, keep, open_parcel, pack
from grading.problem import DECKS
from grading.tomldata import CatalogueError
from grading.warden.intake import bundle_digest
from grading.warden.lock import hold_device

DECK = {
    str(path.relative_to(DECKS)): path.read_bytes()
    for path in (
        DECKS / "hard" / "deck.toml",
        *sorted((DECKS / "hard").glob("*/problem.toml")),
        DECKS / "hard" / "05_topk_bitonic" / "reference.py",
        DECKS / "hard" / "05_topk_bitonic" / "solutions" / "right" / "eager.py",
    )
}
DIGEST = bundle_digest(DECK)


class FakeLink:
    """A control side that answers by kind of message, and remembers what it was told."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.heard = answers, []

    def ask(self, message: Any, wait_seconds: float) -> Any:
        name = type(message).__name__.lower()
        self.heard.append(message)
        answer = self.answers.get(name, DEFAULTS.get(name))
        return answer(message) if callable(answer) else answer

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


def grant(**changes: Any) -> wire.Grant:
    fields = {
        "job": 1, "token": 3, "lease_seconds": 3, "limit_seconds": 60, "problem": "hard/05_topk_bitonic", "gpu": "CPU",
        "tier": "quick", "run": "", "reference": "eager", "deck_digest": DIGEST, "run_digest": "",
    }  # fmt: skip
    return wire.Grant(**{**fields, **changes})


DEFAULTS: dict[str, Any] = {
    "ask": grant(),
    "fetch": lambda message: wire.Files(digest=message.digest, packed=pack(DECK)),
    "beat": wire.GoOn(job=1),
    "result": wire.Taken(job=1, word="verified"),
    "fault": wire.Taken(job=1, word="given back"),
}


@pytest.fixture
def make_session(tmp_path: Path) -> Callable[..., tuple[Session, Place]]:
    def make(link: FakeLink, *grader: str, device: str = "cpu", evidence_dir: str = "") -> tuple[Session, Place]:
        place = Place(
            broker="memory://",
            key=wire.derive_key("secret", "alpha", 1),
            gpu=LocalGpu(device=device, uuid="GPU-0", key="CPU", name="CPU", driver=""),
            found=Found(isolation="A", findings=[], versions={}),
            work=str(tmp_path),
            evidence_dir=evidence_dir,
            grader=[sys.executable, "-m", "tests.service.quickgrade", *grader],
        )
        place.folder.mkdir(exist_ok=True)
        return Session(link, place, Event()), place  # type: ignore[arg-type]

    return make


def leftovers(place: Place) -> list[str]:
    return sorted(path.name for path in place.folder.glob("*") if path.name != "cache")


def test_it_grades_hands_in_and_leaves_only_its_cache(make_session: Callable[..., tuple[Session, Place]]) -> None:
    link = FakeLink()
    worker, place = make_session(link)
    assert worker.run(1) == "verified"
    assert (link.kinds()[:2], link.kinds()[-1]) == (["Ask", "Fetch"], "Result")
    assert "evidence.json" in open_parcel(link.heard[-1].packed, place.folder)
    assert leftovers(place) == []
    link.heard.clear()
    assert worker.run(1) == "verified"
    assert "Fetch" not in link.kinds()


def test_it_grades_nothing_without_a_lease(make_session: Callable[..., tuple[Session, Place]]) -> None:
    for answer in (None, wire.Refusal(job=1, reason="quarantined"), wire.Stop(job=1, reason="no")):
        link = FakeLink(ask=lambda message, answer=answer: answer)
        worker, place = make_session(link)
        assert worker.run(1) == "refused"
        assert (link.kinds(), leftovers(place)) == (["Ask"], [])


def test_it_ends_its_grade_when_told_to_stop(make_session: Callable[..., tuple[Session, Place]]) -> None:
    link = FakeLink(beat=wire.Stop(job=1, reason="job 1 is cancelled"))
    worker, place = make_session(link, "--pause", "60")
    started = time.monotonic()
    assert worker.run(1) == "lost"
    assert time.monotonic() - started < 20
    assert (link.kinds()[-1], leftovers(place)) == ("Beat", [])


def test_it_ends_its_grade_when_nobody_answers_for_a_lease(make_session: Callable[..., tuple[Session, Place]]) -> None:
    def silence(message: wire.Beat) -> None:
        time.sleep(0.2)

    link = FakeLink(ask=grant(lease_seconds=1), beat=silence)
    worker, _ = make_session(link, "--pause", "60")
    assert worker.run(1) == "lost"
    assert "Result" not in link.kinds()


def test_it_gives_back_what_takes_too_long(
    make_session: Callable[..., tuple[Session, Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_MARGIN_SECONDS", 0)
    link = FakeLink(ask=grant(limit_seconds=1))
    worker, _ = make_session(link, "--pause", "60")
    assert worker.run(1) == "failed"
    assert "it ran longer than 1 s" in link.heard[-1].cause


def test_it_gives_back_what_leaves_no_archive(make_session: Callable[..., tuple[Session, Place]]) -> None:
    link = FakeLink()
    worker, _ = make_session(link, "--silent")
    assert worker.run(1) == "failed"
    assert link.heard[-1].cause == "the grade left no archive (exit status 4): error: nothing came of it"


def test_it_says_when_no_host_could_grade_a_job(
    make_session: Callable[..., tuple[Session, Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CatalogueError("no small shapes")

    monkeypatch.setattr(session, "shapes_for", refuse)
    link = FakeLink()
    assert make_session(link)[0].run(1) == "failed"
    assert link.heard[-1] == wire.Fault(job=1, token=3, cause="no small shapes", is_final=True)


def test_it_hands_in_again_until_it_is_taken(make_session: Callable[..., tuple[Session, Place]]) -> None:
    answers = iter([None, None, wire.Taken(job=1, word="verified")])
    link = FakeLink(result=lambda message: next(answers))
    worker, _ = make_session(link)
    assert worker.run(1) == "verified"
    assert link.kinds().count("Result") == 3


def test_a_large_archive_goes_to_the_shared_folder_or_loses_its_output(
    make_session: Callable[..., tuple[Session, Place]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(session, "MAX_INLINE_BYTES", 10)
    link = FakeLink()
    assert make_session(link, evidence_dir=str(shared))[0].run(1) == "verified"
    assert link.heard[-1].packed is None
    assert [path.name for path in shared.iterdir()] == [f"{link.heard[-1].digest}.tar.gz"]
    link = FakeLink()
    assert make_session(link)[0].run(1) == "failed"
    assert "above 10 it needs a shared folder" in link.heard[-1].cause


def test_company_on_the_gpu_and_another_grader_keep_it_from_asking(
    make_session: Callable[..., tuple[Session, Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(session, "count_company", lambda device: 2)
    link = FakeLink()
    worker, _ = make_session(link, device="cuda:0")
    assert worker.run(1) == "busy"
    monkeypatch.setattr(session, "count_company", lambda device: 0)
    for held in ("lease-GPU-0", "cuda:0"):
        with hold_device(held):
            assert worker.run(1) == "busy"
    assert link.heard == []


@pytest.mark.parametrize("packed", [b"", b"no archive", pack({"hard/deck.toml": b"other"})])
def test_files_that_are_not_the_ones_of_the_digest_are_not_used(
    packed: bytes, make_session: Callable[..., tuple[Session, Place]]
) -> None:
    link = FakeLink(fetch=wire.Files(digest=DIGEST, packed=packed))
    worker, place = make_session(link)
    assert worker.run(1) == "failed"
    assert link.kinds()[-1] == "Fault"
    assert [path.name for path in (place.folder / "cache").iterdir() if not path.name.startswith(".")] == []


def test_a_spoilt_cache_is_thrown_away(tmp_path: Path) -> None:
    kept = keep(DECK, DIGEST, tmp_path)
    assert find_kept(DIGEST, tmp_path) == kept
    (kept / "hard" / "deck.toml").write_text("id = 'other'")
    assert find_kept(DIGEST, tmp_path) is None
    assert not kept.exists()


def test_a_worker_tidies_what_a_killed_one_left(tmp_path: Path) -> None:
    for name in ("job-1-3/out", "cache/.parcel-x", "cache/parcel-y", f"cache/{DIGEST}"):
        (tmp_path / name).mkdir(parents=True)
    tidy(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["cache", f"cache/{DIGEST}"]


def test_progress_follows_the_lines_of_the_grade() -> None:
    lines = ["   0.1 s  pass 1: rehearse", "   0.2 s  pass 1: shape 1 call", "   0.3 s  pass 2: start", "error: x"]
    script = f"import sys; sys.stderr.write({chr(10).join(lines)!r})"
    child = Child([sys.executable, "-c", script], shapes=2, passes=2)
    assert child.wait(20) == 0
    assert child.last_words() == "error: x"
    assert (child.step, child.shape, child.percent) == ("start", None, 50.0)
    child.close()


def test_a_device_must_be_there_and_its_board_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "read_host", lambda name: {})
    with pytest.raises(CatalogueError, match="the driver finds no such GPU"):
        gpus.find_gpus("alpha", "cuda", "", 1)
    there = {"cuda:0": {"uuid": "GPU-1", "name": "NVIDIA H200", "driver": "570"}}
    monkeypatch.setattr(gpus, "read_host", lambda name: there.get(name, {}))
    (found,) = gpus.find_gpus("alpha", "cuda", "", 1)
    assert (found.device, found.uuid, found.key) == ("cuda:0", "GPU-1", "H200")
    with pytest.raises(CatalogueError, match="is not clearly B200"):
        gpus.find_gpus("alpha", "cuda:0", "B200", 1)
    assert [gpu.uuid for gpu in gpus.find_gpus("alpha", "cpu", "", 2)] == ["alpha-cpu-0", "alpha-cpu-1"]
