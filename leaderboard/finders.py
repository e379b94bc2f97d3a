"""One static file that belongs to an installed package: Plotly's bundle, and nothing else of that package."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

BUNDLE = "plotly.min.js"


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
