"""Language models and entrants by name: raw model strings folded to one model, and ASCII slugs that never collide.

Data: grading/catalogue/models.toml. A slug is decorative text with a digest behind it wherever spelling it in ASCII
lost something, so that ``智谱`` and ``🚀`` have different addresses.
"""

import hashlib
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from grading.tomldata import CatalogueError, load_table

_PATH = Path(__file__).parent / "catalogue" / "models.toml"
_MAX_SLUG = 60


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One language model, or a named baseline, with every raw string that means it."""

    slug: str
    name: str
    lab: str
    strings: list[str]
    kind: Literal["model", "baseline"]


class _Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: list[ModelEntry]


@cache
def load_models(path: Path = _PATH) -> dict[str, ModelEntry]:
    """Return the catalogue's models by slug. Raises CatalogueError for a repeated slug or string."""
    models: dict[str, ModelEntry] = {}
    strings: set[str] = set()
    for entry in load_table(path, _Models).model:
        repeated = strings & set(entry.strings)
        if entry.slug in models or repeated:
            raise CatalogueError(f"{path}: {sorted(repeated)[0] if repeated else entry.slug!r} is given twice")
        if entry.slug != make_slug(entry.slug):
            raise CatalogueError(f"{path}: slug {entry.slug!r} is not a slug; need {make_slug(entry.slug)!r}")
        strings.update(entry.strings)
        models[entry.slug] = entry
    return models


@cache
def _by_string() -> dict[str, ModelEntry]:
    return {text: entry for entry in load_models().values() for text in entry.strings}


def find_model(text: str) -> ModelEntry | None:
    """Return the catalogue's model for a raw model string, or None where the catalogue does not know it."""
    return _by_string().get(text)


def make_slug(text: str) -> str:
    """Return an ASCII slug of at most 60 characters plus, where spelling it lost something, a digest of the text."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if slug and slug == text and len(slug) <= _MAX_SLUG:
        return slug
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[:_MAX_SLUG].strip('-') or 'x'}-{digest}"


def entrant_slug(model_slug: str, harness: str, effort: str) -> str:
    """Return the slug of an entrant: model, harness and, where given, effort, each as its own slug."""
    parts = [model_slug, make_slug(harness), *([make_slug(effort)] if effort else [])]
    return ".".join(parts)
