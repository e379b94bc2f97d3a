"""Uses of what a problem forbids, found in parsed Python and in tokens of C++, CUDA and embedded CUDA source."""

from collections.abc import Iterator, Mapping

import msgspec

from grading.problem import Rules
from grading.source.ctokens import Token, qualified_names, tokens_of
from grading.source.facts import PythonFacts, read_python
from grading.source.files import c_files, python_files
from grading.source.python import Use, is_under

_SAME_AS_TORCH = ("torch.ops.aten", "torch._C._VariableFunctions", "torch._VF", "torch.Tensor", "torch.functional")
_SAME_AS_FUNCTIONAL = ("torch.ops.aten", "torch._C._nn", "torch.functional")
_C_ROOTS = ("at", "torch", "aten", "at::native", "at::_ops", "torch::nn::functional", "at::cuda")


class Hit(msgspec.Struct, frozen=True):
    """One use of something forbidden: the rule's name, the name as the source leads to it, and its place."""

    rule: str
    name: str
    file: str
    line: int
    is_fallback: bool


def find_forbidden(files: Mapping[str, bytes], rules: Rules) -> Iterator[Hit]:
    """Yield every use of a forbidden call or import in a run's sources, fallback branches marked."""
    spelled = {name: rule for rule in rules.forbidden_calls for name in _spellings(rule)}
    calls = spelled | {rule: rule for rule in rules.forbidden_calls}
    for path, data in python_files(files):
        facts = read_python(data)
        yield from _in_python(path, facts, calls, rules)
        for tokens in facts.embedded:
            yield from _in_tokens(path, tokens, rules.forbidden_calls)
    for path, data in c_files(files):
        yield from _in_tokens(path, tokens_of(data), rules.forbidden_calls)


def _spellings(rule: str) -> Iterator[str]:
    """Yield the names under which torch offers one operation."""
    yield rule
    holder, _, name = rule.rpartition(".")
    if holder in ("torch", "torch.Tensor", "torch.ops.aten"):
        yield f"torch.{name}"
        yield from (f"{same}.{name}" for same in _SAME_AS_TORCH)
    if holder == "torch.nn.functional":
        yield from (f"{same}.{name}" for same in _SAME_AS_FUNCTIONAL)


def _in_python(path: str, facts: PythonFacts, calls: Mapping[str, str], rules: Rules) -> Iterator[Hit]:
    for use in facts.uses:
        rule = _forbidden_import(use, rules.forbidden_imports) or _forbidden_call(use, calls, facts.local)
        if rule is not None:
            yield Hit(rule, use.name, path, use.line, use.is_fallback)


def _forbidden_import(use: Use, forbidden: list[str]) -> str | None:
    return next((rule for rule in forbidden if use.is_import and is_under(use.name, rule)), None)


def _forbidden_call(use: Use, calls: Mapping[str, str], local: frozenset[str]) -> str | None:
    if use.is_import:
        return None
    if use.name.startswith("."):
        method = use.name[1:]
        rule = f"torch.Tensor.{method}"
        return rule if calls.get(rule) == rule and method not in local else None
    parts = use.name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((calls[prefix] for prefix in prefixes if prefix in calls), None)


def _in_tokens(path: str, tokens: tuple[Token, ...], forbidden: list[str]) -> Iterator[Hit]:
    short = {rule.rpartition(".")[2]: rule for rule in forbidden if rule.startswith("torch.")}
    for name, line, is_called in qualified_names(tokens):
        root, _, last = name.rpartition("::")
        if is_called and last in short and root in _C_ROOTS:
            yield Hit(short[last], name, path, line, False)


def imports_of(files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the top-level names of every module that a run's Python sources import."""
    return frozenset(
        use.name.partition(".")[0] for _, data in python_files(files) for use in read_python(data).uses if use.is_import
    )


def has_kernel(files: Mapping[str, bytes], word: str = "__global__") -> bool:
    """Tell whether C or CUDA code of a run, in a sidecar or a string, holds a name."""
    sources = [tokens_of(data) for _, data in c_files(files)]
    for _, data in python_files(files):
        sources.extend(read_python(data).embedded)
    return any(token.kind == "name" and token.text == word for tokens in sources for token in tokens)
