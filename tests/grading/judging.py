"""How far a solution stands from its problem's reference, in tolerances of the grader's gate, on small shapes.

``python -m tests.grading.judging KEY SOLUTION SHAPES`` prints one JSON object of the worst error by case, of two cases
only. It runs in a process of its own where Triton has to interpret kernels, which is slow.
"""

import importlib.util
import inspect
import json
import math
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import torch

from grading.cpushapes import CPU_SHAPES
from grading.oracle.contents import Content, Source, case_names, state_of
from grading.oracle.gates import compare, gate_for
from grading.oracle.secret import Secret
from grading.problem import DECKS, load_problem
from grading.runner.models import bind_shape


def load_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_bound(key: str, shape: dict) -> ModuleType:
    """Return a problem's reference with a shape's numbers assigned."""
    reference = load_file(DECKS / key / "reference.py", "reference")
    bind_shape(reference, shape)
    return reference


def worst_errors(
    key: str, solution: Path, shapes: list[dict] | None = None, limit: int | None = None
) -> dict[str, float]:
    """Return the worst error of each kind of content over the shapes; what is not finite or has a wrong form is inf.

    limit  contents per shape; None = all
    """
    candidate, found = load_file(solution, "solution"), {}
    for shape in shapes or CPU_SHAPES[key]:
        reference = load_bound(key, shape)
        torch.manual_seed(5)
        with torch.no_grad():
            oracle = reference.Model(*reference.get_init_inputs()).eval()
            model = candidate.Model(*reference.get_init_inputs()).eval()
            model.load_state_dict(oracle.state_dict(), strict=True)
            for name, content in islice(contents_of(key, reference, oracle), limit):
                error = error_of(key, reference, content, oracle, model)
                found[name] = max(found.get(name, 0.0), error)
    return found


def contents_of(key: str, reference: ModuleType, oracle: torch.nn.Module) -> Iterator[tuple[str, Content]]:
    """Yield a nominal content, and one of each stress, structural and camouflaged case."""
    names = list(inspect.signature(reference.Model.forward).parameters)[1:]
    stress = {case.name: case.scale for case in load_problem(*key.split("/")).check.stress}
    source = Source(key, reference, oracle, names, stress, Secret(), "0", "cpu")
    yield "nominal", source.draw("nominal", "", 0)
    for kind, cases in (case_names(source) | {"stress": list(stress)}).items():
        for name in cases:
            yield name, source.draw(kind, name, 0)


def error_of(
    key: str, reference: ModuleType, content: Content, oracle: torch.nn.Module, model: torch.nn.Module
) -> float:
    """Return the largest error of an answer, and of inputs that are changed in place."""
    wanted_inputs, found_inputs = ([tensor.clone() for tensor in content.inputs] for _ in range(2))
    wanted, found = call(oracle, wanted_inputs, content), call(model, found_inputs, content)
    pairs = list(zip(wanted, found, strict=True))
    try:
        if hasattr(reference, "compared_parts"):
            answers = (part[0] if len(part) == 1 else tuple(part) for part in (wanted, found))
            pairs = [(a, b) for _, a, b in reference.compared_parts(content.inputs, *answers)]
    except ValueError:
        return math.inf
    names = list(inspect.signature(reference.Model.forward).parameters)[1:]
    places = [names.index(name) for name in getattr(reference, "IN_PLACE", ())]
    for place, before in enumerate(content.inputs):
        assert place in places or torch.equal(found_inputs[place], before), f"{names[place]} was written to"
    pairs += [(wanted_inputs[place], found_inputs[place]) for place in places]
    ratios = [compare(a, b, gate_for(key, str(a.dtype)[6:], content.kind)).ratio for a, b in pairs]
    return math.inf if None in ratios else max(ratios)


def call(model: torch.nn.Module, inputs: list[torch.Tensor], content: Content) -> list[torch.Tensor]:
    """Return the answer's parts; the state that a content asks for is put in and taken out again."""
    kept = {name: state_of(model)[name].clone() for name in content.state}
    for name, value in content.state.items():
        state_of(model)[name].copy_(value)
    answer = model(*inputs)
    for name, value in kept.items():
        state_of(model)[name].copy_(value)
    return list(answer) if isinstance(answer, tuple | list) else [answer]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(worst_errors(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), limit=2)))
