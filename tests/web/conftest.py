"""A small site with one run of each kind, built the way operators build it: archives, audits, decisions, releases."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from grading.problem import load_problem
from leaderboard import publishing
from leaderboard.ingest import Source, ingest_paths
from leaderboard.models import Decision, GradeEvent, Publication, Release, ReleasedCell, Run, Verification, Waiver
from leaderboard.publishing import Act
from leaderboard.recompute import recompute_all
from tests.database import forced_edits
from tests.factories import make_audit_text, make_benchmark, write_archive

PROBLEM = "07_w4a16_gemm"
SECRET_SUMMARY = "the-words-of-the-audit"


@dataclass(frozen=True)
class World:
    """The runs of the site. `hidden` are those whose numbers may stand in their own evidence block only."""

    published: Run
    withheld: Run
    failed: Run
    withdrawn: Run
    pending: Run

    @property
    def hidden(self) -> tuple[Run, ...]:
        """The runs that are not results."""
        return self.withheld, self.failed, self.withdrawn, self.pending


Add = Callable[..., Run]


@pytest.fixture
def add(tmp_path: Path, act: Act) -> Add:
    """Write and ingest one run: a model's, with times in milliseconds, an audit's verdict, and result.json fields."""

    def make(model: str, times: list[float], verdict: str | None = "clean", **fields: object) -> Run:
        log = make_benchmark(load_problem("hard", PROBLEM), times=times)
        folder = write_archive(tmp_path / "archive", problem_id=PROBLEM, model=model, log=log, **fields)
        paths = [folder]
        if verdict:
            audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
            audit.parent.mkdir(parents=True, exist_ok=True)
            audit.write_text(make_audit_text(folder.name, verdict, summary=f"{SECRET_SUMMARY} of {model}"))
            paths.append(audit)
        report = ingest_paths(paths, Source(act.at))
        recompute_all(runs=report.touched)
        return Run.objects.select_related("problem", "entrant__model", "assessment").get(run_id=folder.name)

    return make


@pytest.fixture
def world(add: Add, act: Act) -> World:
    """A published, a withheld, a failed, a withdrawn and a pending run, in two releases."""
    published = add("good-model", [0.0511, 0.0522, 0.0533, 0.0544, 0.0555])
    withdrawn = add("gone-model", [0.0611, 0.0622, 0.0633, 0.0644, 0.0655])
    for run in (published, withdrawn):
        publishing.approve(run, act)
    publishing.release(act)
    withheld = add("held-model", [0.0711, 0.0722, 0.0733, 0.0744, 0.0755], peak_fraction=0.7319)
    failed = add("failed-model", [0.0811, 0.0822, 0.0833, 0.0844, 0.0855], "bug", correct=False)
    pending = add("quiet-model", [0.0911, 0.0922, 0.0933, 0.0944, 0.0955], None)
    publishing.withdraw(withdrawn, act)
    publishing.release(act)
    return World(published, withheld, failed, withdrawn, pending)


@pytest.fixture
def stranger() -> Client:
    """A reader without an account."""
    return Client()


@pytest.fixture
def staff(db: None) -> Client:
    """A signed-in member of the staff."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", "root@example.org", "not-a-real-password"))
    return client


@pytest.fixture
def clean_log(transactional_db: None) -> Iterator[None]:
    """Take away what is append-only, so that the database can be emptied after the test."""
    yield
    with forced_edits():
        log = (ReleasedCell, Release, Waiver.runs.through, Waiver, Publication, Decision, Verification, GradeEvent)
        for model in log:
            model.objects.all().delete()


class _Outside(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section" and (self.depth or any(name == "data-evidence" for name, _ in attrs)):
            self.depth += 1
        if not self.depth:
            self.parts.extend(f"{name}={value}" for name, value in attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "section" and self.depth:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if not self.depth:
            self.parts.append(data)


def outside_evidence(html: str) -> str:
    """Return a page's texts and attributes without what stands in its evidence block."""
    parser = _Outside()
    parser.feed(html)
    return "\n".join(parser.parts)
