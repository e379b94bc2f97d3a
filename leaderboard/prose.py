"""A small Markdown reader for our own documents: headings, paragraphs, lists, code and tables as plain data.

Templates draw the blocks, so that everything is escaped by the template engine. What is not understood stays text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(((?:https?://|/|#)[^)\s]*)\)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
_RULE = re.compile(r"\|[\s:|-]+\|")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line. `kind` is text, code, strong or link."""

    kind: str
    text: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A block. `kind` is heading, paragraph, list, code or table; only the matching fields are set.

    text  the code; of a table what names it among the document's tables: the heading that it stands under
    """

    kind: str
    level: int = 0
    anchor: str = ""
    spans: tuple[Span, ...] = ()
    items: tuple[tuple[Span, ...], ...] = ()
    rows: tuple[tuple[tuple[Span, ...], ...], ...] = ()
    text: str = ""


def parse(source: str) -> tuple[Block, ...]:
    """Return a document's blocks in order."""
    lines, blocks = source.splitlines(), []
    while lines:
        if not lines[0].strip():
            lines.pop(0)
        else:
            blocks.append(_take(lines))
    return tuple(_with_names(blocks))


def _with_names(blocks: list[Block]) -> Iterator[Block]:
    """Name every table after the heading above it, with a number from the second one under it on."""
    heading, count = "", 0
    for block in blocks:
        if block.kind == "heading":
            heading, count = "".join(span.text for span in block.spans), 0
        elif block.kind == "table":
            count += 1
            yield replace(block, text=heading if count == 1 else f"{heading}, {count}")
            continue
        yield block


def spans(text: str) -> tuple[Span, ...]:
    """Return a line's pieces."""
    found, start = [], 0
    for match in _INLINE.finditer(text):
        if match.start() > start:
            found.append(Span("text", text[start : match.start()]))
        code, strong, label, href = match.groups()
        found.append(Span("code", code) if code else Span("strong", strong) if strong else Span("link", label, href))
        start = match.end()
    return (*found, Span("text", text[start:])) if start < len(text) else tuple(found)


def _take(lines: list[str]) -> Block:
    first = lines[0]
    if first.startswith("```"):
        return _take_code(lines)
    if first.startswith("#"):
        lines.pop(0)
        title = first.lstrip("#").strip()
        anchor = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        return Block("heading", level=len(first) - len(first.lstrip("#")), anchor=anchor, spans=spans(title))
    if first.startswith("|"):
        return _take_table(lines)
    return _take_list(lines) if _ITEM.match(first) else _take_paragraph(lines)


def _take_code(lines: list[str]) -> Block:
    lines.pop(0)
    body = []
    while lines and not lines[0].startswith("```"):
        body.append(lines.pop(0))
    if lines:
        lines.pop(0)
    return Block("code", text="\n".join(body))


def _take_table(lines: list[str]) -> Block:
    rows = []
    while lines and lines[0].startswith("|"):
        line = lines.pop(0).strip()
        if not _RULE.fullmatch(line):
            rows.append(tuple(spans(cell.strip()) for cell in line.strip("|").split("|")))
    return Block("table", rows=tuple(rows))


def _take_list(lines: list[str]) -> Block:
    items: list[str] = []
    while lines and lines[0].strip() and (_ITEM.match(lines[0]) or lines[0].startswith(" ")):
        line = lines.pop(0)
        if _ITEM.match(line):
            items.append(_ITEM.sub("", line, count=1))
        else:
            items[-1] += f" {line.strip()}"
    return Block("list", items=tuple(spans(item) for item in items))


def _take_paragraph(lines: list[str]) -> Block:
    body = [lines.pop(0).strip()]
    while lines and lines[0].strip() and not lines[0].startswith(("#", "|", "```")) and not _ITEM.match(lines[0]):
        body.append(lines.pop(0).strip())
    return Block("paragraph", spans=spans(" ".join(body)))
