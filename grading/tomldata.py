"""Typed tables from TOML files, with errors that name file, key, value and what is accepted."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Table = TypeVar("Table")


class CatalogueError(ValueError):
    """A catalogue file that cannot be used; the message is safe to show to users."""


def load_table(path: Path, kind: type[Table]) -> Table:
    """Return the content of a TOML file as a typed table.

    kind  a msgspec.Struct declared with ``forbid_unknown_fields=True``
    Raises CatalogueError for unreadable TOML, an unknown or missing key, or a value of the wrong type.
    """
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"{path}: {error}") from error
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{path}: {error}") from error
