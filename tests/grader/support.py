"""What the grader's tests share: the tiny problems, the candidates' headers, and grading with a running oracle."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from grading.problem import load_decks
from grading.warden.grade import Grade, Request, grade
from grading.warden.oraclehost import OracleHost
from grading.warden.plan import Effort

HERE = Path(__file__).parent
OPS = HERE / "ops"
_HEADER = re.compile(
    r"^Op: (?P<op>\w+)\.(?: Expect: (?P<expect>\w+)(?: by (?P<rule>[\w.]+\w))?\.)?(?: On a GPU: (?P<on_gpu>\w+)\.)?$",
    re.MULTILINE,
)
TINY = Effort(2, 6, 10, 0, 3, 3, 6, 8, (3, 5), 3, 1, False)


@dataclass(frozen=True)
class Candidate:
    """One file of the suite, with what its first lines say of it; ``on_gpu`` where another verdict is right there."""

    path: Path
    op: str
    expect: str
    rule: str
    on_gpu: str = ""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def as_on_gpu(self) -> "Candidate":
        """The candidate with what is expected of it on a GPU."""
        return replace(self, expect=self.on_gpu, rule="") if self.on_gpu else self


def candidates(folder: str) -> Iterator[Candidate]:
    """Yield the suite's candidates in order of name; a folder is a bundle of several files."""
    for path in sorted((HERE / folder).iterdir()):
        if path.suffix == ".py" or (path / "solution.py").exists():
            yield read_candidate(path)


def read_candidate(path: Path) -> Candidate:
    """Return a candidate and its header."""
    source = path / "solution.py" if path.is_dir() else path
    said = _HEADER.search(source.read_text())
    assert said is not None, f"{source} does not say its operation"
    return Candidate(path, said["op"], said["expect"] or "", said["rule"] or "", said["on_gpu"] or "")


def files_of(path: Path) -> dict[str, bytes]:
    """Return a candidate's bundle."""
    if not path.is_dir():
        return {"solution.py": path.read_bytes()}
    return {str(entry.relative_to(path)): entry.read_bytes() for entry in path.rglob("*") if entry.is_file()}


def make_request(op: str, bundle: dict[str, bytes], **changes) -> Request:
    """Return the request of a tiny problem on the processor."""
    reference = OPS / "toy" / op / "reference.py"
    fields = {"reference": reference, "device": "cpu", "tier": "quick", "effort": TINY} | changes
    return Request(problem=load_decks(OPS)["toy"].problems[op], bundle=bundle, **fields)


def grade_source(op: str, source: str, host: OracleHost | None = None, **changes) -> Grade:
    """Grade a solution's text on a tiny problem."""
    on_step = changes.pop("on_step", lambda name, taken: None)
    return grade(make_request(op, {"solution.py": source.encode()}, **changes), on_step, host)
