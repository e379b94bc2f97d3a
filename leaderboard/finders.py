"""Static files that do not lie in `static/` as they are served: one bundle of an installed package, and whole sheets.

A page asks for one stylesheet, and `static/css/` has one file per component: the sheets are the components in order.
"""

import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

BUNDLE = "plotly.min.js"
# The order is the cascade's: tokens first, and what narrow screens and print change last.
_COMPONENTS = (
    "tokens", "base", "frame", "section", "state", "bar", "table", "matrix", "home", "form", "run", "chart", "file",
    "document", "compare", "tools",
)  # fmt: skip
SHEETS = {
    "css/site.css": (*_COMPONENTS, "screen"),
    "css/review.css": (*_COMPONENTS, "screen", "desk"),
}


class PlotlyFinder(BaseFinder):
    """Finds `plotly.min.js` in the installed package, without importing it."""

    def __init__(self, app_names: Any = None, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("plotly")
        folder = Path(spec.origin).parent / "package_data" if spec and spec.origin else Path("/nonexistent")
        self.storage = FileSystemStorage(location=folder)
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:
        """Return the bundle's place for its name, and nothing for any other."""
        found = self.storage.path(BUNDLE) if path == BUNDLE and self.storage.exists(BUNDLE) else None
        return ([found] if found else []) if find_all else (found or [])

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        """Yield the bundle."""
        if self.storage.exists(BUNDLE):
            yield BUNDLE, self.storage


class SheetFinder(BaseFinder):
    """Finds the sheets that pages ask for, joined from their components whenever those have changed."""

    def __init__(self, app_names: Any = None, *args: Any, **kwargs: Any) -> None:
        self.storage = FileSystemStorage(location=settings.VAR_DIR / "sheets")
        super().__init__(*args, **kwargs)

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:
        """Return the place of a sheet, and nothing for any other name."""
        found = self._build(path) if path in SHEETS else None
        return ([found] if found else []) if find_all else (found or [])

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        """Yield the sheets."""
        for name in SHEETS:
            self._build(name)
            yield name, self.storage

    def _build(self, name: str) -> str:
        """Write a sheet where it differs from what is there; a server that reads meanwhile sees the old or the new."""
        target = Path(self.storage.path(name))
        content = join_sheet(name)
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        return str(target)


def join_sheet(name: str) -> bytes:
    """Return the text of a sheet of `SHEETS`."""
    folder = settings.BASE_DIR / "static" / "css"
    return b"\n".join((folder / f"{component}.css").read_bytes() for component in SHEETS[name])
