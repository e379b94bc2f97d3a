"""C, C++ and CUDA source as tokens: comments and literals dropped, every token with its line."""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from grading.source.files import text_of

_TOKEN = re.compile(
    r"(?P<comment>//(?:\\\r?\n|[^\n])*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))"
    r"|(?P<raw>(?:u8|[uUL])?R\"(?P<mark>[^()\\\s\"]{0,16})\((?s:.*?)\)(?P=mark)\")"
    r"|(?P<string>(?:u8|[uUL])?\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n]){0,12}')"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+)"
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|[A-Za-z0-9_.'])*+)"
    r"|(?P<mark2>::|->|##|[^\s\w])",
)
_DEAD = re.compile(
    r"^[ \t]*#[ \t]*if[ \t]+0\b[^\n]*\n(?:(?![ \t]*#[ \t]*(?:else|elif|endif|if))[^\n]*\n)*", re.MULTILINE
)


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One token: ``name``, ``number``, ``string`` (its text without quotes) or ``mark``."""

    kind: str
    text: str
    line: int


@lru_cache(maxsize=512)
def tokens_of(data: bytes) -> tuple[Token, ...]:
    """Return the tokens of a source in order. Never raises: what is no C is read as single marks."""
    return tuple(tokenize(text_of(data)))


def tokenize(text: str, first_line: int = 1) -> Iterator[Token]:
    """Yield the tokens of a text; a simple ``#if 0`` block counts as a comment."""
    text = _DEAD.sub(lambda match: "\n" * match[0].count("\n"), text)
    line, position = first_line, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        kind, value = match.lastgroup or "", match.group()
        if kind in ("name", "number"):
            yield Token(kind, value, line)
        elif kind == "mark2":
            yield Token("mark", value, line)
        elif match["comment"] is None:
            yield Token("string", value, line)


def qualified_names(tokens: tuple[Token, ...]) -> Iterator[tuple[str, int, bool]]:
    """Yield every ``a::b::c`` name with its line, and whether it is called."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != "name":
            index += 1
            continue
        parts, end = [token.text], index + 1
        while end + 1 < len(tokens) and tokens[end].text == "::" and tokens[end + 1].kind == "name":
            parts.append(tokens[end + 1].text)
            end += 2
        is_member = index > 0 and tokens[index - 1].text in (".", "->")
        is_called = end < len(tokens) and tokens[end].text in ("(", "<")
        yield ("." if is_member else "") + "::".join(parts), token.line, is_called
        index = end
