"""The archive of a release: data, schemas, licence, metadata and checksums in one tar.gz of reproducible bytes.

It is made when it is asked for, from what may be shown at that moment; a score that was withdrawn since the release is
not in it. The same release in the same public state gives the same bytes.
"""

import base64
import datetime
import gzip
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec
import orjson
from django.conf import settings

from grading.record import Record
from leaderboard import exports, metadata
from leaderboard.boards.state import State
from leaderboard.memory import read_snapshot
from leaderboard.models import Release

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_INDENT = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS


class _Digesting(io.RawIOBase):
    """A file that digests what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self.file.write(data)


def write_archive(release: Release, state: State, at: datetime.datetime) -> tuple[IO[bytes], str]:
    """Return the archive as an open file at its start, and its SHA-256 in base64. It is gone when it is closed."""
    target: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # type: ignore[assignment]
    digesting = _Digesting(target)
    with gzip.GzipFile(filename="", fileobj=digesting, mode="wb", compresslevel=6, mtime=0) as packed:  # type: ignore[arg-type]
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as bundle:
            _Writer(bundle, release).write_all(state, at)
    target.seek(0)
    return target, base64.b64encode(digesting.sha256.digest()).decode()


class _Writer:
    """Adds files to one archive and remembers their checksums."""

    def __init__(self, bundle: tarfile.TarFile, release: Release) -> None:
        self.bundle, self.release = bundle, release
        self.folder = f"proofline-release-{release.number}"
        self.files: list[metadata.DataFile] = []

    def write_all(self, state: State, at: datetime.datetime) -> None:
        """Add everything, checksums last."""
        snapshot = read_snapshot(state, self.release, at)
        self._add("cells.csv", exports.join_text(exports.cell_table(snapshot.cells)), "text/csv")
        self._add("cells.ndjson", exports.join_lines(exports.cell_lines(snapshot, {})), metadata.NDJSON)
        held = {(cell.deck, cell.gpu, cell.run_id) for cell in snapshot.cells}
        self._add("runs.ndjson", exports.join_lines(exports.named_run_lines(held, at)), metadata.NDJSON)
        self._add(
            "measurements.ndjson", exports.join_lines(exports.measurement_lines(self.release, {}, at)), metadata.NDJSON
        )
        self._add("schema/api.json", [orjson.dumps(metadata.api_schemas(), option=_INDENT)], metadata.JSON)
        self._add("schema/record.json", [orjson.dumps(msgspec.json.schema(Record), option=_INDENT)], metadata.JSON)
        self._add("LICENSE", [(settings.BASE_DIR / "LICENSE").read_bytes()], "text/plain")
        self._add("CITATION.cff", [metadata.citation(self.release).encode()], "text/yaml")
        self._add("README.md", [metadata.readme(self.release, state).encode()], "text/markdown")
        croissant = metadata.croissant(self.release, self.files)
        self._add("croissant.json", [orjson.dumps(croissant, option=orjson.OPT_INDENT_2)], "application/ld+json")
        sums = "".join(f"{file.sha256}  {file.path}\n" for file in self.files)
        self._add("SHA256SUMS", [sums.encode()], "text/plain")

    def _add(self, path: str, chunks: Iterable[bytes] | Iterator[bytes], media_type: str) -> None:
        """Add one file; its size must be known before its content, so it is written aside first."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as held:
            digest, size = hashlib.sha256(), 0
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                held.write(chunk)
            held.seek(0)
            member = tarfile.TarInfo(f"{self.folder}/{path}")
            member.size, member.mode = size, 0o644
            member.mtime = int(self.release.created_at.timestamp())
            self.bundle.addfile(member, held)  # type: ignore[arg-type]
        self.files.append(metadata.DataFile(path, digest.hexdigest(), size, media_type))
