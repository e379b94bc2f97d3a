"""Grades of a survey judged again by the rules of today, from their evidence: no GPU is needed for a better rule.

An archive that would be written otherwise today, be it the verdict, the record or a log, is written anew. One whose
source has changed since stays as it is: the survey will measure it again.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from grading.evidence import read_evidence
from grading.hardware import load_gpus
from grading.problem import load_problem
from grading.rundir import PACKED_EVIDENCE, pack_evidence, unpack_evidence
from grading.survey.book import Book, BookFile, Entry, grades_in
from grading.survey.grades import graded_of, read_graded
from grading.survey.items import Solution, every_solution
from grading.verdict import judge
from grading.warden.archiveout import Entry as Archived
from grading.warden.archiveout import write_archive
from grading.warden.grade import Grade


def rejudge_grades(out: Path) -> Iterator[str]:
    """Judge each finished grade of a folder again; yield a line for each that is written otherwise now.

    Raises SurveyError when there are no grades, RecordError or OSError for evidence that cannot be read.
    """
    path = grades_in(out)
    device = msgspec.json.decode(path.read_bytes(), type=BookFile).device
    book = Book(path, "grades", device)
    for entry in list(book.entries.values()):
        graded = read_graded(entry)
        solution = _solution_of(entry, graded.digest) if graded is not None else None
        if graded is None or solution is None:
            continue
        evidence = read_evidence(unpack_evidence((out / graded.archive / PACKED_EVIDENCE).read_bytes()))
        outputs = [log.read_bytes() for log in sorted((out / graded.archive).glob("candidate-output-*.log"))]
        done = Grade(evidence, judge(evidence), outputs)
        is_another = _write_anew(out / graded.archive, solution, done)
        result = msgspec.to_builtins(graded_of(solution, done, graded.archive))
        if result != entry.result:
            book.add(msgspec.structs.replace(entry, result=result))
        if done.verdict.word != graded.verdict:
            yield f"{entry.key}: {graded.verdict} is {done.verdict.word} now"
        elif is_another:
            yield f"{entry.key}: written anew, {done.verdict.word} as before"


def _solution_of(entry: Entry, digest: str) -> Solution | None:
    """Return the solution that was graded, or None where it is another by now."""
    problem = load_problem(*entry.problem.split("/", 1))
    known = (solution for solution in every_solution(problem) if solution.name == entry.solution)
    return next((solution for solution in known if solution.digest == digest), None)


def _write_anew(folder: Path, solution: Solution, done: Grade) -> bool:
    """Write a run directory under the name that it has, if a file of it is another today; tell whether one was."""
    started = datetime.strptime(folder.name[:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    with TemporaryDirectory(prefix=".again-", dir=folder.parent) as staging:
        gpu = load_gpus()[folder.parent.name]
        finished = datetime.fromisoformat(msgspec.json.decode((folder / "result.json").read_bytes())["finished_at"])
        fresh = write_archive(Archived(solution.problem, gpu, solution.bundle, done, started, finished), Path(staging))
        pack_evidence(fresh)
        if _content(fresh) == _content(folder):
            return False
        os.rename(folder, Path(staging) / "old")
        os.rename(fresh, folder)
    return True


def _content(folder: Path) -> dict[str, bytes]:
    """Return the files of a run directory, evidence as it was before it was packed."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return files | {PACKED_EVIDENCE: unpack_evidence(files[PACKED_EVIDENCE])}
