"""Checked arithmetic for the formulas that decks carry as data, such as ``2 * M * N * K``.

Formulas may use names of the shape, decimal numbers, ``+ - * / // % **``, parentheses, ``min``, ``max`` and ``ceil``.
Nothing is ever evaluated by Python's ``eval``: the parsed tree is walked and every other construct is refused.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {"min": min, "max": max, "ceil": math.ceil}
_MAX_EXPONENT = 8
_MAX_LENGTH = 500


class FormulaError(ValueError):
    """A formula that cannot be read or evaluated; the message is safe to show to users."""


def evaluate(formula: str, names: Mapping[str, Number]) -> Number:
    """Return the value of a formula.

    formula  text as in problem.toml
    names    the shape's numbers
    Raises FormulaError for syntax outside the small language, an unknown name, a division by zero, or a result that is
    not finite.
    """
    try:
        result = _value(_parse(formula), names)
    except (ZeroDivisionError, OverflowError) as error:
        raise FormulaError(f"formula {formula!r} fails for {dict(names)}: {error}") from error
    if not math.isfinite(result):
        raise FormulaError(f"formula {formula!r} is not finite for {dict(names)}")
    return result


def names_in(formula: str) -> frozenset[str]:
    """Return the shape names that a formula needs. Raises FormulaError for a formula that cannot be read."""
    tree = _parse(formula)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


@lru_cache(maxsize=1024)
def _parse(formula: str) -> ast.expr:
    if len(formula) > _MAX_LENGTH:
        raise FormulaError(f"formula is {len(formula)} characters long; at most {_MAX_LENGTH} are accepted")
    try:
        tree = ast.parse(formula, mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise FormulaError(f"formula {formula!r} is not arithmetic: {error}") from error
    for node in ast.walk(tree):
        _check(node, formula)
    return tree


def _check(node: ast.AST, formula: str) -> None:
    if isinstance(node, ast.Constant):
        is_allowed = type(node.value) in (int, float)
    elif isinstance(node, ast.Call):
        is_allowed = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    else:
        is_allowed = isinstance(node, (ast.BinOp, ast.Name, ast.Load, ast.Pow, *_OPERATORS))
    if not is_allowed:
        raise FormulaError(
            f"formula {formula!r} uses {type(node).__name__}; "
            "accepted are names, numbers, + - * / // % **, min, max and ceil"
        )


def _value(node: ast.expr, names: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            if name not in names:
                raise FormulaError(f"formula needs {name!r}; the shape has {', '.join(names) or 'no names'}")
            return names[name]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, names) for argument in arguments))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, names), _value(right, names))
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](_value(left, names), _value(right, names))
    raise FormulaError(f"formula holds {type(node).__name__}, which is not arithmetic")


def _power(base: Number, exponent: Number) -> Number:
    if not 0 <= exponent <= _MAX_EXPONENT:
        raise FormulaError(f"exponent {exponent} is out of range; accepted are 0 to {_MAX_EXPONENT}")
    return float(base**exponent) if isinstance(exponent, float) else base**exponent
