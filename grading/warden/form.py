"""Which form a bundle has: a model that takes the reference's tensors, or the deck's own entry points.

Read from parsed source before anything runs, since the form decides what is asked. A bundle gains nothing by either:
all answers of both are compared in full.

Source: docs/grader.md "Entry points".
"""

import ast
from collections.abc import Iterable, Mapping

from grading.problem import Form, Problem
from grading.source.facts import read_python
from grading.source.files import python_files
from grading.source.python import Module

_Classes = dict[str, ast.ClassDef]


def form_of(problem: Problem, reference: bytes, bundle: Mapping[str, bytes]) -> Form:
    """Return ``entry`` for a bundle that defines the deck's entry points and whose model lacks the reference's form.

    reference  source of the problem's reference, whose model says how many tensors a call takes
    """
    if problem.entry is None:
        return "plain"
    sources = [data for _, data in python_files(bundle)]
    wanted = _count_inputs(_classes_of([reference]), "Model")
    if _count_inputs(_classes_of(sources), "Model") in (wanted, None):
        return "plain"
    defined = {name for data in sources for name in read_python(data).local}
    return "entry" if defined.issuperset(problem.entry.names) else "plain"


def _classes_of(sources: Iterable[bytes]) -> _Classes:
    nodes = [node for data in sources for node in Module(data).of(ast.ClassDef)]
    return {node.name: node for node in reversed(nodes)}


def _count_inputs(classes: _Classes, name: str) -> int | None:
    """Return how many inputs a class's ``forward`` takes, through its bases; 0 without one, None for any number."""
    node = classes.get(name)
    others = {key: value for key, value in classes.items() if key != name}
    for part in node.body if node is not None else []:
        if isinstance(part, ast.FunctionDef) and part.name == "forward":
            return None if part.args.vararg else len(part.args.posonlyargs + part.args.args) - 1
    bases = [ast.unparse(base).rpartition(".")[2] for base in (node.bases if node is not None else [])]
    return next((count for base in bases if (count := _count_inputs(others, base)) != 0), 0)
