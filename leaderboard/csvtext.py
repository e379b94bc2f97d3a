"""CSV that is safe to open in a spreadsheet and still reads back to the same values (RFC 4180, CRLF, UTF-8).

Texts stand in quotes, numbers and booleans bare, and a missing value is nothing at all; so an empty text and a missing
one differ. A text that a spreadsheet could take for a formula gets one apostrophe before it, and so does one that
begins with an apostrophe: a reader takes away exactly one leading apostrophe of a quoted field.
"""

from collections.abc import Iterable

Value = str | float | int | bool | None
_GUARDED = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")


def write_row(values: Iterable[Value]) -> str:
    """Return one line with its end."""
    return ",".join(map(_write, values)) + "\r\n"


def _write(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return '"' + guard(value).replace('"', '""') + '"'


def guard(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip(" \u00a0").startswith(_GUARDED) or text.startswith(_GUARDED) else text


def unguard(text: str) -> str:
    """Return the text that `guard` was given."""
    return text.removeprefix("'")
