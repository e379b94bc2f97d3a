"""What the rules want to know of one Python source, found in one go and kept without its tree.

Trees are large and many runs share a source, so the facts are remembered by the source's bytes and the tree is not.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from grading.source.ctokens import Token, tokenize
from grading.source.files import C_ENDS
from grading.source.leads import FINDERS, find_environment_sets, find_size_compares
from grading.source.python import Module, Use

_CUDA = re.compile(r"__global__|#\s*include\b|\b(?:at|torch)::")
_LOADERS = frozenset({"load", "CUDAExtension", "CppExtension"})
_SIDECAR = re.compile(r"[A-Za-z0-9_./-]{1,200}")


class PythonFacts(msgspec.Struct, frozen=True):
    """One source, as far as rules ask.

    local           names of the functions and classes that it defines
    seen            by kind of lead, lines and what was seen there
    size_compares   branches on a size: the line and the whole numbers that it compares with
    embedded        the tokens of each string that holds C++ or CUDA
    loaded          relative paths of C and CUDA files that it builds and does not write itself, with their lines
    """

    error: str | None
    error_line: int | None
    uses: tuple[Use, ...]
    local: frozenset[str]
    seen: dict[str, tuple[tuple[int, str], ...]]
    size_compares: tuple[tuple[int, tuple[int, ...]], ...]
    environment_sets: tuple[tuple[int, str], ...]
    embedded: tuple[tuple[Token, ...], ...]
    loaded: tuple[tuple[int, str], ...]


@lru_cache(maxsize=2048)
def read_python(data: bytes) -> PythonFacts:
    """Return the facts of one source. Never raises."""
    module = Module(data)
    named: list[ast.FunctionDef | ast.ClassDef] = [*module.of(ast.FunctionDef), *module.of(ast.ClassDef)]
    return PythonFacts(
        error=module.error,
        error_line=module.error_line,
        uses=module.uses(),
        local=frozenset(node.name for node in named),
        seen={kind: tuple(sorted(set(find(module)))) for kind, find in FINDERS.items()},
        size_compares=tuple(find_size_compares(module)),
        environment_sets=tuple(find_environment_sets(module)),
        embedded=tuple(_embedded(module)),
        loaded=tuple(_loaded(module)),
    )


def _embedded(module: Module) -> Iterator[tuple[Token, ...]]:
    for node in module.of(ast.Constant):
        if isinstance(node.value, str) and _CUDA.search(node.value):
            if not isinstance(module.parents.get(node), ast.Expr):
                yield tuple(tokenize(node.value, node.lineno))


def _loaded(module: Module) -> Iterator[tuple[int, str]]:
    texts = [node.value for node in module.of(ast.Constant) if isinstance(node.value, str)]
    for node in module.of(ast.Call):
        if (module.resolve(node.func) or "").rpartition(".")[2] not in _LOADERS:
            continue
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "sources")]
        for inner in (child for argument in given for child in ast.walk(argument)):
            text = inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None
            if text and text.endswith(C_ENDS) and _SIDECAR.fullmatch(text) and not text.startswith("/"):
                is_written = sum(1 for other in texts if other.endswith(text)) > 1
                if not is_written:
                    yield node.lineno, text
