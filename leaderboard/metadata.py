"""What describes a release to other systems: Croissant, citation, read-me and JSON schemas."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from leaderboard.boards.state import State
from leaderboard.context import NAME, TAGLINE, version
from leaderboard.models import Release
from leaderboard.representation import rfc3339

JSON, NDJSON = "application/json", "application/x-ndjson"
_TYPES = {"string": "sc:Text", "number": "sc:Float", "integer": "sc:Integer", "boolean": "sc:Boolean"}
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "format": "cr:format",
    "jsonPath": "cr:jsonPath",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "sc": "https://schema.org/",
    "source": "cr:source",
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of an archive."""

    path: str
    sha256: str
    size_bytes: int
    media_type: str


def licence_url() -> str:
    """Return the address of the licence of exported data."""
    return f"https://spdx.org/licenses/{settings.DATA_LICENCE}.html"


def dataset(release: Release) -> dict[str, Any]:
    """Return what schema.org's Dataset says of a release."""
    address = f"{settings.SITE_URL}/releases/{release.number}/"
    return {
        "@type": "sc:Dataset",
        "name": f"proofline-release-{release.number}",
        "description": f"{NAME}, {TAGLINE}: all cells of release {release.number}, their runs and timings.",
        "url": address,
        "license": licence_url(),
        "version": f"{release.number}.0.0",
        "datePublished": rfc3339(release.created_at),
        "dateModified": rfc3339(release.created_at),
        "creator": {"@type": "Organization", "name": NAME, "url": settings.SITE_URL},
        "citeAs": f"{NAME}, release {release.number}, digest {release.digest}, {address}",
        "keywords": ["GPU kernels", "language models", "benchmark", "leaderboard"],
        "isAccessibleForFree": True,
    }


def croissant(release: Release, files: Iterable[DataFile]) -> dict[str, Any]:
    """Return Croissant 1.0 metadata of a release's archive."""
    from leaderboard.exports import CELL_COLUMNS

    held = list(files)
    distribution = [
        {
            "@type": "cr:FileObject",
            "@id": file.path,
            "name": file.path,
            "contentUrl": file.path,
            "contentSize": f"{file.size_bytes} B",
            "encodingFormat": file.media_type,
            "sha256": file.sha256,
        }
        for file in held
        if file.path.endswith((".csv", ".ndjson"))
    ]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"cells/{column}",
            "name": column,
            "dataType": _column_type(column),
            "source": {"fileObject": {"@id": "cells.csv"}, "extract": {"column": column}},
        }
        for column in CELL_COLUMNS
    ]
    return {
        "@context": _CONTEXT,
        **dataset(release),
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "distribution": distribution,
        "recordSet": [{"@type": "cr:RecordSet", "@id": "cells", "name": "cells", "field": fields}],
    }


def _column_type(column: str) -> str:
    if column in ("score", "score_low", "score_high", "share_of_best"):
        return _TYPES["number"]
    if column in ("rank_low", "rank_high", "release"):
        return _TYPES["integer"]
    return _TYPES["boolean"] if column == "higher_is_better" else _TYPES["string"]


def citation(release: Release) -> str:
    """Return CITATION.cff of a release."""
    return (
        "cff-version: 1.2.0\n"
        "message: If you use these results, cite the release that you used, with its digest.\n"
        "type: dataset\n"
        f'title: "{NAME}, release {release.number}"\n'
        "authors:\n"
        f'  - name: "{NAME}"\n'
        f'version: "{release.number}"\n'
        f"date-released: {release.created_at.date().isoformat()}\n"
        f'url: "{settings.SITE_URL}/releases/{release.number}/"\n'
        f'license: "{settings.DATA_LICENCE}"\n'
        "identifiers:\n"
        "  - type: other\n"
        f'    value: "sha256:{release.digest}"\n'
        "    description: digest of the released cells\n"
    )


def readme(release: Release, state: State) -> str:
    """Return the archive's README."""
    return f"""# {NAME}, release {release.number}

{TAGLINE[0].upper()}{TAGLINE[1:]}.

- Release {release.number}, {rfc3339(release.created_at)}, digest `{release.digest}`.
- State `{state.token}` of {rfc3339(state.changed_at)}: scores withdrawn or blocked until then are not in these files,
  although the release was made with them. Software {version() or "unknown"}.
- `cells.csv`, `cells.ndjson`: what the boards show. `runs.ndjson`: the runs behind them. `measurements.ndjson`: every
  timing line of the published ones, as printed in their logs.
- `schema/api.json`: JSON Schemas of the lines. `schema/record.json`: the typed record that ingest reads.
- Missing and withheld are null (nothing at all in CSV), never 0. In CSV, take one leading apostrophe off a quoted text.
- `SHA256SUMS`: `sha256sum --check SHA256SUMS`. Data licence: {settings.DATA_LICENCE} ({licence_url()}).
- Newer state: {settings.SITE_URL}/api/v1/releases/{release.number}/archive.tar.gz
"""


def api_schemas() -> dict[str, Any]:
    """Return the JSON Schemas of the lines in an archive."""
    from leaderboard.api import catalogue_schemas, schemas

    return {
        "cells.ndjson": schemas.Cell.model_json_schema(mode="serialization"),
        "runs.ndjson": schemas.RunLine.model_json_schema(mode="serialization"),
        "measurements.ndjson": catalogue_schemas.Measurement.model_json_schema(mode="serialization"),
    }
