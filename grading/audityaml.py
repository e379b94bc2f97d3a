"""YAML as people write it, read without surprises, and repaired where that cannot change a word.

The parser's events are turned into texts, booleans, lists and tables here, so no constructor ever runs. Only ``true``
and ``false`` are booleans (YAML 1.2); numbers stay the text that was written. Aliases, tags, repeated keys, several
documents and control characters are faults.

Source: docs/method.md "Audits".
"""

import re
from typing import Any

import msgspec
import yaml

Value = str | bool | None | list["Value"] | dict[str, "Value"]

MAX_DEPTH = 32
MAX_EVENTS = 100_000
MAX_REPAIRS = 20
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TAGS = frozenset({None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"})
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_TOP_KEY = re.compile(r"^([A-Za-z_][A-Za-z0-9_.-]*):(?=[ \t\r]|$)", re.MULTILINE | re.ASCII)
_ENTRY = re.compile(r"( *)(- +)?(?:[A-Za-z_][A-Za-z0-9_.-]*:[ \t]+)?(?=\S)", re.ASCII)
_BLOCK_HEAD = re.compile(r"( *)(- +)?(?:[A-Za-z_][A-Za-z0-9_.-]*:[ \t]+)?[|>][+-]?[ \t]*", re.ASCII)
_SIBLING = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*:(?:[ \t]|$)", re.ASCII)
_NOT_PLAIN = tuple("'\"[]{}|>&*!%@`#,?")


class YamlFault(Exception):
    """A text that is no plain YAML table, with the place (lines and columns from 1)."""

    def __init__(self, reason: str, line: int, column: int, start_line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column
        self.start_line = start_line or line


class Repaired(msgspec.Struct, frozen=True):
    """A table with what had to be repaired to read it, and the fault that made it necessary."""

    table: dict[str, Any]
    repairs: tuple[str, ...] = ()
    reason: str | None = None
    line: int | None = None
    column: int | None = None


def read_table(text: str) -> dict[str, Value]:
    """Return a YAML text's one table. Raises YamlFault for anything else."""
    control = _CONTROL.search(text)
    if control is not None:
        raise _fault_at(text, control.start(), f"control character {control[0]!a}")
    builder = _Builder()
    try:
        for count, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
            if count > MAX_EVENTS:
                raise _event_fault(event, f"more than {MAX_EVENTS} parts")
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _marked_fault(error) from error
    except yaml.YAMLError as error:
        raise YamlFault(str(error).splitlines()[0][:200], 1, 1) from error
    if not isinstance(builder.root, dict):
        raise YamlFault("holds no table of keys and values", 1, 1)
    return builder.root


def read_or_repair(text: str) -> Repaired:
    """Return a text's table, after repairs that only add quotes and indents where it does not read as it is.

    Raises the first YamlFault when that is not enough.
    """
    try:
        return Repaired(read_table(text))
    except YamlFault as fault:
        first = last = fault
    current, repairs = text, []
    for _ in range(MAX_REPAIRS):
        step = _next_step(current, last)
        if step is None:
            break
        current, note, fault_or_table = step
        repairs.append(note)
        if isinstance(fault_or_table, dict):
            if _is_same_text(text, current) and list(fault_or_table) == _TOP_KEY.findall(text):
                return Repaired(fault_or_table, tuple(repairs), first.reason, first.line, first.column)
            break
        last = fault_or_table
    raise first


def _next_step(text: str, fault: YamlFault) -> tuple[str, str, dict[str, Value] | YamlFault] | None:
    """Return the text after one repair that reads, or gets further than before, with its description."""
    for repair in (_raise_block, _quote_entry):
        changed = repair(text.split("\n"), fault)
        if changed is None:
            continue
        lines, note = changed
        candidate = "\n".join(lines)
        try:
            return candidate, note, read_table(candidate)
        except YamlFault as later:
            if later.line > fault.line:
                return candidate, note, later
    return None


def _quote_entry(lines: list[str], fault: YamlFault) -> tuple[list[str], str] | None:
    """Quote the plain value, or plain list item, that holds the place of a fault and a colon."""
    first = _owner(lines, min(fault.start_line, len(lines)) - 1)
    if first is None:
        return None
    match = _ENTRY.match(lines[first])
    if match is None:
        return None
    last = _last_line(lines, first, len(match[1]))
    parts = [lines[first][match.end() :], *lines[first + 1 : last + 1]]
    if parts[0].startswith(_NOT_PLAIN) or any(" #" in part for part in parts[:-1]):
        return None
    body, gap, comment = _split_comment(parts[-1])
    parts[-1] = body
    if not any(": " in part or part.endswith(":") for part in parts):
        return None
    quoted = "\n".join(parts).replace("'", "''")
    changed = f"{lines[first][: match.end()]}'{quoted}'{gap}{comment}".split("\n")
    kind = "list item" if match[2] and match.end() == len(match[1] + match[2]) else "value"
    note = f"line {first + 1}: quoted a plain {kind} that holds a colon"
    return [*lines[:first], *changed, *lines[last + 1 :]], note


def _owner(lines: list[str], index: int) -> int | None:
    """Return the line that starts the list item or the value which a line belongs to."""
    if _starts_entry(lines[index]):
        return index
    indent = _indent(lines[index])
    for above in range(index - 1, max(index - 200, -1), -1):
        if lines[above].strip() and _indent(lines[above]) < indent:
            return above if _starts_entry(lines[above]) else None
    return None


def _starts_entry(line: str) -> bool:
    match = _ENTRY.match(line)
    return match is not None and match.end() > len(match[1])


def _last_line(lines: list[str], first: int, indent: int) -> int:
    last = first
    for index in range(first + 1, len(lines)):
        if lines[index].strip():
            if _indent(lines[index]) <= indent or lines[index].lstrip().startswith("- "):
                break
            last = index
    return last


def _split_comment(text: str) -> tuple[str, str, str]:
    """Return a value's text, the gap behind it, and a comment that ends its line."""
    body, mark, comment = text.partition(" #")
    kept = body.rstrip()
    return kept, body[len(kept) :], mark + comment


def _raise_block(lines: list[str], fault: YamlFault) -> tuple[list[str], str] | None:
    """Indent the lines of a block text that stand further left than its first one."""
    start = fault.line - 1
    if start >= len(lines) or not lines[start].strip():
        return None
    head = next(
        (i for i in range(start - 1, max(start - 500, -1), -1) if _BLOCK_HEAD.fullmatch(lines[i].rstrip())), None
    )
    if head is None:
        return None
    inner = [_indent(line) for line in lines[head + 1 : start] if line.strip()]
    if not inner or min(inner) < inner[0] or not 0 < _indent(lines[start]) < inner[0]:
        return None
    end = _block_end(lines, head, start)
    low = min((_indent(line) for line in lines[start:end] if line.strip()), default=inner[0])
    if end == start or low >= inner[0]:
        return None
    shift = " " * (inner[0] - low)
    raised = [shift + line if line.strip() else line for line in lines[start:end]]
    note = f"line {start + 1}: indented {end - start} lines of the block text that starts at line {head + 2}"
    return [*lines[:start], *raised, *lines[end:]], note


def _block_end(lines: list[str], head: int, start: int) -> int:
    """Return the first line at or after ``start`` that belongs to the structure around a block text."""
    match = _BLOCK_HEAD.match(lines[head])
    key_indent = len(match[1] + (match[2] or "")) if match else 0
    for index in range(start, len(lines)):
        text = lines[index].strip()
        indent = _indent(lines[index])
        is_item = text.startswith("- ") and indent < max(key_indent, 1)
        if text and (indent == 0 or is_item or (indent == key_indent and _SIBLING.match(text))):
            return index
    return len(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_same_text(before: str, after: str) -> bool:
    return "".join(before.split()).replace("'", "") == "".join(after.split()).replace("'", "")


class _Builder:
    """Turns parser events into values, without recursion."""

    def __init__(self) -> None:
        self.root: Value = None
        self.open: list[list[Value] | dict[str, Value]] = []
        self.keys: list[str | None] = []
        self.documents = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _event_fault(event, "anchor or alias")
        if getattr(event, "tag", None) not in _TAGS:
            raise _event_fault(event, f"tag {event.tag[:60]!a}")
        if isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.open.pop()
            self.keys.pop()
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _event_fault(event, "second document")

    def _open(self, value: list[Value] | dict[str, Value], event: Any) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise _event_fault(event, f"more than {MAX_DEPTH} levels")
        self._put(value, event)
        self.open.append(value)
        self.keys.append(None)

    def _take_scalar(self, event: Any) -> None:
        text: str = event.value
        if _CONTROL.search(text):
            raise _event_fault(event, "escaped control character")
        if self.open and isinstance(self.open[-1], dict) and self.keys[-1] is None:
            if text in self.open[-1]:
                raise _event_fault(event, f"key {text[:60]!a} is given twice")
            self.keys[-1] = text
            self.open[-1][text] = None
            return
        is_plain = event.implicit[0] and event.style in (None, "")
        self._put((None if text in _NULLS else _BOOLEANS.get(text, text)) if is_plain else text, event)

    def _put(self, value: Value, event: Any) -> None:
        if not self.open:
            self.root = value
            return
        top = self.open[-1]
        if isinstance(top, list):
            top.append(value)
            return
        key = self.keys[-1]
        if key is None:
            raise _event_fault(event, "key that is no text")
        top[key] = value
        self.keys[-1] = None


def _event_fault(event: Any, reason: str) -> YamlFault:
    mark = event.start_mark
    return YamlFault(reason, mark.line + 1, mark.column + 1)


def _marked_fault(error: yaml.MarkedYAMLError) -> YamlFault:
    mark = error.problem_mark or error.context_mark
    start = error.context_mark if "simple key" in (error.context or "") else None
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return YamlFault((error.problem or "not YAML")[:200], line, column, start.line + 1 if start else None)


def _fault_at(text: str, offset: int, reason: str) -> YamlFault:
    return YamlFault(reason, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
