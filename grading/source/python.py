"""Python source as facts: which imported names it uses, through aliases, attribute chains and assembled names.

Names are resolved without running anything: ``import torch as t``, ``from torch import topk as pick``, ``F =
torch.nn``, ``getattr(torch, "to" + "pk")``, ``importlib.import_module("torch").topk`` and ``sys.modules["torch"]``
all lead to ``torch.topk``. A use in a branch that only runs when building an extension failed is marked as a
fallback.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from grading.source.files import text_of

_DYNAMIC_IMPORTS = frozenset({"__import__", "importlib.import_module", "importlib.__import__"})
MAX_PYTHON_BYTES = 512 * 1024
_MAX_NAME = 300
_Node = TypeVar("_Node", bound=ast.AST)
_ROUNDS = 4


class Use(msgspec.Struct, frozen=True):
    """One use of an imported name. A method of something unknown is named ``.method``."""

    name: str
    line: int
    is_call: bool
    is_fallback: bool
    is_import: bool = False


class Module:
    """One parsed Python source. ``error`` says why it could not be parsed; then there is no tree."""

    def __init__(self, data: bytes) -> None:
        self.tree: ast.Module | None = None
        self.error: str | None = None
        self.error_line: int | None = None
        self.nodes: list[ast.AST] = []
        self._by_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.names: dict[str, set[str]] = {}
        self.texts: dict[str, str] = {}
        self._uses: tuple[Use, ...] | None = None
        self._parse(data)
        if self.tree is not None:
            self._link(self.tree)
            self._bind()
        self.fallbacks = self._find_fallbacks()

    def _parse(self, data: bytes) -> None:
        if len(data) > MAX_PYTHON_BYTES:
            self.error = f"{len(data)} bytes long; at most {MAX_PYTHON_BYTES} are read"
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text_of(data))
        except SyntaxError as error:
            self.error, self.error_line = str(error.msg)[:120], error.lineno
        except (ValueError, RecursionError, MemoryError) as error:
            self.error = str(error)[:120] or "nested too deeply"

    def of(self, *kinds: type[_Node]) -> list[_Node]:
        """Return the nodes of some kinds, outer ones first within a kind."""
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]  # type: ignore[misc]

    def _link(self, tree: ast.Module) -> None:
        self.nodes.append(tree)
        for node in self.nodes:
            self._by_kind.setdefault(type(node), []).append(node)
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                self.nodes.append(child)

    def _bind(self) -> None:
        """Bind names to what imports and plain assignments make of them; a few rounds follow chains of aliases."""
        for plain in self.of(ast.Import):
            for alias in plain.names:
                self._bind_name(alias.asname or alias.name.partition(".")[0], alias.name if alias.asname else None)
        for node in self.of(ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                self._bind_name(alias.asname or alias.name, f"{module}.{alias.name}".lstrip("."))
        values = (*self.of(ast.Assign), *self.of(ast.AnnAssign), *self.of(ast.NamedExpr))
        assignments = [found for value in values if (found := _assignment(value))]
        for _ in range(_ROUNDS):
            before = sum(map(len, self.names.values())) + len(self.texts)
            for target, value in assignments:
                self._bind_value(target, value)
            if sum(map(len, self.names.values())) + len(self.texts) == before:
                break

    def _bind_name(self, name: str, dotted: str | None) -> None:
        self.names.setdefault(name, set()).add(dotted or name)

    def _bind_value(self, target: str, value: ast.expr) -> None:
        dotted, text = self.resolve(value), self.constant(value)
        if dotted is not None and dotted != target and len(self.names.setdefault(target, set())) < 8:
            self.names[target].add(dotted)
        if text is not None and target not in self.texts:
            self.texts[target] = text

    def resolve(self, node: ast.AST) -> str | None:
        """Return the dotted name that an expression leads to, or None where it is not an imported one."""
        tail: list[str] = []
        while len(tail) < 20:
            if isinstance(node, ast.Attribute):
                tail.append(node.attr)
                node = node.value
                continue
            step = self._step(node)
            if step is None:
                break
            node, name = step
            tail.append(name)
        root = self._root(node)
        if root is None:
            return None
        dotted = ".".join([root, *reversed(tail)])
        return dotted if len(dotted) <= _MAX_NAME else None

    def _step(self, node: ast.AST) -> tuple[ast.AST, str] | None:
        """Return object and attribute of ``getattr(x, "a")``, ``x.__dict__["a"]`` or ``vars(x)["a"]``."""
        if isinstance(node, ast.Call) and _is_name(node.func, "getattr") and len(node.args) >= 2:
            name = self.constant(node.args[1])
            return (node.args[0], name) if name else None
        if isinstance(node, ast.Subscript):
            name = self.constant(node.slice)
            holder = node.value
            if name and isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
                return holder.value, name
            if name and isinstance(holder, ast.Call) and _is_name(holder.func, "vars") and len(holder.args) == 1:
                return holder.args[0], name
        return None

    def _root(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            bound = self.names.get(node.id)
            return min(bound, key=lambda name: (name == node.id, len(name))) if bound else None
        if isinstance(node, ast.Call) and node.args:
            function = "__import__" if _is_name(node.func, "__import__") else self.resolve(node.func)
            return self.constant(node.args[0]) if function in _DYNAMIC_IMPORTS else None
        if isinstance(node, ast.Subscript) and self.resolve(node.value) == "sys.modules":
            return self.constant(node.slice)
        return None

    def constant(self, node: ast.AST, depth: int = 0) -> str | None:
        """Return the text that an expression certainly has: literals, sums, joins, formatted and reversed ones."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value[:_MAX_NAME] if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self.constant(node.left, depth + 1), self.constant(node.right, depth + 1)])
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            return _joined([self.constant(part, depth + 1) for part in parts])
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            text = self.constant(node.value, depth + 1)
            return text[::-1] if text is not None and _is_reversal(node.slice) else None
        return self._joined_call(node, depth)

    def _joined_call(self, node: ast.AST, depth: int) -> str | None:
        is_join = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if not (is_join and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            return None
        glue, parts = self.constant(node.func.value, depth + 1), node.args[0]
        if glue is None or not isinstance(parts, ast.List | ast.Tuple):
            return None
        texts = [self.constant(part, depth + 1) for part in parts.elts]
        return glue.join(text for text in texts if text is not None) if None not in texts else None

    def uses(self) -> tuple[Use, ...]:
        """Return every use of an imported name, the longest chain only, and every method call on something unknown."""
        if self._uses is None:
            self._uses = tuple(self._find_uses())
        return self._uses

    def _find_uses(self) -> Iterator[Use]:
        imports: list[ast.Import | ast.ImportFrom] = [*self.of(ast.Import), *self.of(ast.ImportFrom)]
        for statement in imports:
            yield from self._imports(statement)
        for node in (*self.of(ast.Attribute), *self.of(ast.Name), *self.of(ast.Call), *self.of(ast.Subscript)):
            if not self._is_inner(node):
                yield from self._use(node)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[Use]:
        module = "" if isinstance(node, ast.Import) else (node.module or "")
        for alias in node.names:
            name = ".".join(part for part in (module, alias.name) if part)
            yield Use(name, node.lineno, False, self.is_fallback(node), is_import=True)

    def _use(self, node: ast.expr) -> Iterator[Use]:
        name, parent = self.resolve(node), self.parents.get(node)
        is_call = isinstance(parent, ast.Call) and parent.func is node
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return
        if name is not None:
            yield Use(name, node.lineno, is_call, self.is_fallback(node), self._is_dynamic_import(node))
        elif isinstance(node, ast.Attribute) and is_call and not self._is_plain_list_sort(node, parent):
            yield Use(f".{node.attr}", node.lineno, True, self.is_fallback(node))

    def _is_dynamic_import(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._step(node) is None and self._root(node) is not None

    def _is_inner(self, node: ast.AST) -> bool:
        """Tell whether a longer chain around a node is read instead of it."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Attribute):
            return self.resolve(parent) is not None
        if isinstance(parent, ast.Call | ast.Subscript):
            step = self._step(parent)
            return step is not None and self.resolve(parent) is not None
        return False

    def _is_plain_list_sort(self, node: ast.Attribute, call: ast.AST | None) -> bool:
        """Tell whether ``x.sort(...)`` sorts a list: a statement of its own, or with ``key`` or ``reverse``."""
        if node.attr != "sort" or not isinstance(call, ast.Call):
            return False
        words = {keyword.arg for keyword in call.keywords}
        return bool(words & {"key", "reverse"}) or isinstance(self.parents.get(call), ast.Expr)

    def is_fallback(self, node: ast.AST) -> bool:
        """Tell whether a node only runs after something failed."""
        return node in self.fallbacks

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield a node and everything around it."""
        current: ast.AST | None = node
        while current is not None:
            yield current
            current = self.parents.get(current)

    def _find_fallbacks(self) -> frozenset[ast.AST]:
        """Return the nodes that only run after a failure: handlers, branches on a flag that one sets, their helpers."""
        inside = _below(self.of(ast.ExceptHandler))
        assigned = (_assignment(node) for node in inside)
        flags = {found[0] for found in assigned if found and isinstance(found[1], ast.Constant)}
        branches: list[ast.If | ast.IfExp] = [*self.of(ast.If), *self.of(ast.IfExp)]
        inside |= _below([part for node in branches for part in _failed_branch(node, flags)])
        return frozenset(inside | _below(self._only_named_in(inside)))

    def _only_named_in(self, inside: set[ast.AST]) -> list[ast.AST]:
        """Return the functions that are named inside the given nodes and nowhere else."""
        mentions: dict[str, list[bool]] = {}
        for name in self.of(ast.Name):
            mentions.setdefault(name.id, []).append(name in inside)
        for attribute in self.of(ast.Attribute):
            mentions.setdefault(attribute.attr, []).append(attribute in inside)
        functions = [node for node in self.of(ast.FunctionDef) if node.name != "forward"]
        return [node for node in functions if mentions.get(node.name) and all(mentions[node.name])]


def _below(parts: Iterable[ast.AST]) -> set[ast.AST]:
    """Return nodes and everything below them."""
    found: set[ast.AST] = set()
    todo = list(parts)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(ast.iter_child_nodes(node))
    return found


def _failed_branch(node: ast.If | ast.IfExp, flags: set[str]) -> list[ast.AST]:
    """Return the branch that runs when a flag is None or false."""
    test, is_negative = node.test, False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_negative = test.operand, True
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        if test.comparators[0].value not in (None, False):
            return []
        is_negative = isinstance(test.ops[0], ast.Is | ast.Eq)
        test = test.left
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else None
    if name not in flags:
        return []
    branch = node.body if is_negative else node.orelse
    return list(branch) if isinstance(branch, list) else [branch]


def _assignment(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return target and value of a plain assignment to a name or an attribute."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        target, value = node.target, node.value
    else:
        return None
    if isinstance(target, ast.Name):
        return target.id, value
    return (target.attr, value) if isinstance(target, ast.Attribute) else None


def _is_name(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name and isinstance(node.value, ast.Name) and node.value.id in ("builtins", "__builtins__")
    return isinstance(node, ast.Name) and node.id == name


def _is_reversal(node: ast.Slice) -> bool:
    step = node.step
    return (
        node.lower is None
        and node.upper is None
        and isinstance(step, ast.UnaryOp)
        and isinstance(step.op, ast.USub)
        and isinstance(step.operand, ast.Constant)
        and step.operand.value == 1
    )


def _joined(parts: list[str | None]) -> str | None:
    texts = [part for part in parts if part is not None]
    return "".join(texts)[:_MAX_NAME] if len(texts) == len(parts) else None


def is_under(name: str, prefix: str) -> bool:
    """Tell whether a dotted name is a prefix itself or lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")
