"""Turn every comparison of every integrity rule around, one at a time, and see that a case of the rulebook notices.

Run by hand: ``python -m tests.tools.mutate_rules [MODULE ...]``. A changed module is executed beside the real one, its
rules stand in the registry for the moment, and all cases of those rules are judged again. Survivors are printed with
their places; the exit status is 1 where there are any that are not listed here with a reason.
"""

import ast
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator

import grading.integrity as package
from grading.integrity import RULES, Context
from tests.rulebook import all_cases

# Comparisons that only choose a word of a message, or whose turned form says the same.
KNOWN = {
    "leads.py: len(lines) <= 1": "plural of a word",
    "transcripts.py: len(lines) <= 1": "plural of a word",
    "regrades.py: others <= 1": "plural of a word",
    "scores.py: context.problem.metric.kind != 'throughput'": "a word of the message",
    "scores.py: gpu.key == context.gpu.key": "order of tables that explain a score equally well",
    "sources.py: hit.name != hit.rule": "whether the spelling is repeated in the message",
    "structure.py: event.name == 'start'": "a pair of events is late by its end as by its start",
    "structure.py: event.name != 'start'": "a pair of events is odd by its end as by its start",
}
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def comparisons(tree: ast.Module) -> Iterator[tuple[ast.Compare, int]]:
    """Yield every comparison with the position of each of its operators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from ((node, position) for position in range(len(node.ops)))


class Judge:
    """The cases of one module's rules, built once."""

    def __init__(self, codes: set[str]) -> None:
        speaks, silent = all_cases()
        self.cases: list[tuple[str, bool, Context]] = [
            (code, is_speaking, make())
            for cases, is_speaking in ((speaks, True), (silent, False))
            for code, _, make in cases
            if code in codes
        ]

    def notices(self) -> bool:
        """Tell whether any case is judged otherwise than it should be, or fails."""
        for code, is_speaking, context in self.cases:
            try:
                if bool(list(RULES[code].check(context))) != is_speaking:
                    return True
            except Exception:  # noqa: BLE001 - a mutant may fail in any way, and that is being noticed
                return True
        return False


def survivors(name: str) -> Iterator[str]:
    """Yield the places of a module whose turned comparison no case notices."""
    module = importlib.import_module(f"grading.integrity.{name}")
    codes = {code for code, rule in RULES.items() if rule.check.__module__ == module.__name__}
    kept = {code: RULES[code] for code in codes}
    judge, source = Judge(codes), inspect.getsource(module)
    if judge.notices():
        raise SystemExit(f"{name}: the rulebook's own cases fail; run its tests first")
    for number, _ in enumerate(comparisons(ast.parse(source))):
        tree = ast.parse(source)
        node, position = list(comparisons(tree))[number]
        node.ops[position] = TURNED[type(node.ops[position])]()
        for code in codes:
            del RULES[code]
        try:
            run(tree, module)
            is_noticed = judge.notices()
        except Exception:  # noqa: BLE001 - a module that does not even load is noticed
            is_noticed = True
        RULES.update(kept)
        if not is_noticed:
            yield f"{name}.py:{node.lineno}: {ast.unparse(node)}"


def run(tree: ast.Module, module: types.ModuleType) -> None:
    """Execute a changed module under the real one's name, without replacing it."""
    changed = types.ModuleType(module.__name__)
    changed.__file__ = module.__file__
    sys.modules[module.__name__], real = changed, sys.modules[module.__name__]
    try:
        exec(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), changed.__dict__)
    finally:
        sys.modules[module.__name__] = real


def main(names: list[str]) -> int:
    """Print the survivors of some or all modules, and how many comparisons were turned."""
    known = sorted(item.name for item in pkgutil.iter_modules(package.__path__))
    count = left = known_count = 0
    for name in names or known:
        module = importlib.import_module(f"grading.integrity.{name}")
        if not any(rule.check.__module__ == module.__name__ for rule in RULES.values()):
            continue
        count += sum(1 for _ in comparisons(ast.parse(inspect.getsource(module))))
        for place in survivors(name):
            file, line, text = place.split(":", 2)
            if f"{file}:{text}" in KNOWN:
                known_count += 1
                continue
            left += 1
            sys.stdout.write(f"survived: {file}:{line}:{text}\n")
    noticed = count - left - known_count
    sys.stdout.write(f"{count} comparisons turned, {noticed} noticed, {known_count} known, {left} survived\n")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
