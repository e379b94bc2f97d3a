"""``python -m grading.survey WHAT --device cuda:0 --gpu H200 --out DIR``: see docs/grader.md "Surveys"."""

import argparse
import sys
from pathlib import Path

from grading.record import RecordError
from grading.survey.again import rejudge_grades
from grading.survey.audits import write_audits
from grading.survey.book import SurveyError
from grading.survey.course import SURVEYS, Options
from grading.tomldata import CatalogueError
from grading.words import counted

INCOMPLETE = 3
_WITHOUT_A_GPU = {"audits": write_audits, "rejudge": rejudge_grades}


def main(arguments: list[str]) -> int:
    """Run the command; return 0 when nothing is left to measure, 3 when something is, 2 for a mistake."""
    given = _parser().parse_args(arguments)
    try:
        if given.what in _WITHOUT_A_GPU:
            for line in _WITHOUT_A_GPU[given.what](given.out):
                sys.stdout.write(line + "\n")
            return 0
        if given.plan and given.what != "grades":
            raise SurveyError("--plan is for grades")
        names = Options.__dataclass_fields__
        left, text = SURVEYS[given.what](Options(**{name: getattr(given, name) for name in names}))
    except (SurveyError, CatalogueError, RecordError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(text + "\n")
    if left and not given.plan:
        sys.stderr.write(f"{counted(left, 'item is', 'items are')} left; the same command goes on with them\n")
    return INCOMPLETE if left else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grading.survey", description="Measure all that needs a GPU.")
    parser.add_argument("what", choices=(*SURVEYS, *_WITHOUT_A_GPU))
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0 (default: cpu)")
    parser.add_argument("--gpu", help="key of the board, for example H200; needed on a GPU")
    parser.add_argument("--out", type=Path, required=True, help="folder of results; the same one again goes on")
    parser.add_argument("--only", nargs="+", default=[], metavar="GLOB", help="DECK/PROBLEM or DECK/PROBLEM/SOLUTION")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="stop before this is over")
    parser.add_argument("--each", type=float, metavar="SECONDS", help="limit of a grade, a solution, a kernel's seeds")
    parser.add_argument("--retry", action="store_true", help="try again what failed or overran")
    parser.add_argument(
        "--all", action="store_true", help="grades: every right and wrong solution and the generic cheats"
    )
    parser.add_argument("--tier", choices=("quick", "full"), default="full", help="grades: the tier")
    parser.add_argument("--twice", action="store_true", help="grades: grade each again and compare")
    parser.add_argument("--plan", action="store_true", help="grades: only say what is missing, and how long it takes")
    parser.add_argument("--variant", type=Path, nargs="+", default=[], metavar="FILE", help="kernels: candidates")
    parser.add_argument("--seeds", type=int, help="seeds: numbers to draw (1000); else nominal contents per shape (3)")
    parser.add_argument("--first", type=int, default=0, help="seeds: the first number")
    parser.add_argument("--store", action="store_true", help="tolerances: write tolerance.json beside the problems")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
