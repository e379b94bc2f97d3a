"""What search engines read about a release: schema.org's Dataset as JSON-LD."""

from typing import Any

from django.conf import settings

from leaderboard import metadata
from leaderboard.models import Release


def describe(release: Release) -> dict[str, Any]:
    """Return a release as schema.org's Dataset, with its downloads."""
    api = f"{settings.SITE_URL}/api/v1"
    downloads = {
        f"{api}/cells.csv?release={release.number}": "text/csv",
        f"{api}/cells.ndjson?release={release.number}": "application/x-ndjson",
        f"{api}/releases/{release.number}/archive.tar.gz": "application/gzip",
    }
    return {
        "@context": "https://schema.org/",
        **metadata.dataset(release),
        "@type": "Dataset",
        "measurementTechnique": f"{settings.SITE_URL}/methodology/",
        "variableMeasured": ["share of peak", "speedup", "time per call in milliseconds"],
        "distribution": [
            {"@type": "DataDownload", "contentUrl": url, "encodingFormat": kind} for url, kind in downloads.items()
        ],
    }
