"""How far a solution stands from its problem's reference, in tolerances of the grader's gate, on small shapes.

``python -m tests.grading.judging KEY SOLUTION SHAPES`` prints one JSON object of the worst error by case, of two cases
only. It runs in a process of its own where Triton has to interpret kernels, which is slow.
"""

import json
import math
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import torch

from grading.cpushapes import CPU_SHAPES
from grading.problem import DECKS, load_problem
from grading.runner.models import bind_shape
from grading.survey.bench import Bench, load_module


def load_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name."""
    return load_module(path, name)


def load_bound(key: str, shape: dict) -> ModuleType:
    """Return a problem's reference with a shape's numbers assigned."""
    reference = load_file(DECKS / key / "reference.py", "reference")
    bind_shape(reference, shape)
    return reference


def worst_errors(
    key: str, solution: Path, shapes: list[dict] | None = None, limit: int | None = None
) -> dict[str, float]:
    """Return the worst error of each content over the shapes; what is not finite or has a wrong form is inf.

    limit  contents per shape; None = all
    """
    found: dict[str, float] = {}
    for shape in shapes or CPU_SHAPES[key]:
        with torch.no_grad():
            bench = Bench(load_problem(*key.split("/")), shape, "cpu")
            model = bench.add(solution)
            for name, content in islice(bench.contents(1), limit):
                ratio = bench.judge(model, content, bench.call(bench.oracle, content)).ratio
                found[name] = max(found.get(name, 0.0), math.inf if ratio is None else ratio)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worst_errors(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), limit=2)))
