"""Archives: run directories, trees of them, bundles and audit files, read into typed items.

Every file met is part of a run, an audit, or a named rejection; hidden files are passed over. One bad run never stops
the rest. Links, devices and pipes are refused, never followed.

Source: docs/method.md "Archives".
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from grading.auditfile import MAX_AUDIT_BYTES, Audit, AuditError, read_audit
from grading.bundle import BundleError, unpack
from grading.problem import load_decks
from grading.record import Record, RecordError, RunKey
from grading.resultfile import inner_run_id
from grading.rundir import MAX_DEPTH, RUN_MARKS, cause, printable, read_directory, read_plain_file
from grading.runid import check_deck, check_run_id, is_run_id

_BUNDLES = (".zip", ".tar.gz", ".tgz")
_AUDITS = (".yaml", ".yml")
_STRAY = "not part of a run archive"
_EMPTY = "holds no run and no audit"


class KeyHint(msgspec.Struct, frozen=True):
    """What the caller knows of a run's key; what is None is read from the path ``<deck>/<GPU>/<run_id>``."""

    deck: str | None = None
    gpu: str | None = None
    run_id: str | None = None


class RunItem(msgspec.Struct, frozen=True):
    """A run that was read, with the bytes of its files by digest."""

    path: str
    record: Record
    blobs: dict[str, bytes]


class AuditItem(msgspec.Struct, frozen=True):
    """An audit that was read, with its bytes."""

    path: str
    audit: Audit
    blob: bytes


class Rejection(msgspec.Struct, frozen=True):
    """A file or directory that gave nothing, and why."""

    path: str
    reason: str


Item = RunItem | AuditItem | Rejection


class _Place(msgspec.Struct, frozen=True):
    """Where the walk is: the path on disk, the path to show, and the names that may tell deck, GPU and run id."""

    path: Path
    label: str
    names: tuple[str, ...]
    is_bundle: bool = False

    def below(self, name: str) -> "_Place":
        return _Place(self.path / name, f"{self.label}/{name}", (*self.names, name), self.is_bundle)

    def rejected(self, reason: str) -> Rejection:
        return Rejection(printable(self.label), reason)

    def is_named(self, ends: tuple[str, ...]) -> bool:
        return self.names[-1].lower().endswith(ends)


_NO_HINT = KeyHint()


def read_run(root: Path, hint: KeyHint = _NO_HINT) -> tuple[Record, dict[str, bytes]]:
    """Return the record of one run directory, and the bytes of its files by SHA-256 digest.

    root  a directory that holds ``result.json``, or ``meta.log`` for a run of the multi deck
    hint  deck, GPU and run id where they are known; otherwise the last three names of the path
    Raises RecordError when it is no run that can become a record.
    """
    if root.is_symlink():
        raise RecordError(f"{printable(str(root))} is a link; need a directory")
    try:
        record, content = read_directory(root, _key(Path(os.path.abspath(root)).parts, hint))
    except OSError as error:
        raise RecordError(f"{printable(str(root))} cannot be read: {cause(error)}") from error
    return record, content.blobs()


def content_digest(record: Record) -> str:
    """Return the SHA-256 hex digest of a run's content: its files' paths and digests, in order of path."""
    lines = sorted(f"{file.path}\0{file.digest}\n" for file in record.files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_paths(paths: Iterable[Path], deck: str | None = None, gpu: str | None = None) -> Iterator[Item]:
    """Yield what run directories, trees of them, bundles and audit files or folders hold, in order of name.

    deck, gpu  stand for all runs found, where given; otherwise the path ``<deck>/<GPU>/<run_id>`` tells them
    Never raises for what it finds: that becomes a `Rejection`.
    """
    for path in paths:
        absolute = Path(os.path.abspath(path))
        place = _Place(absolute, str(path), absolute.parts)
        yield from _unless_empty(place, _read_path(place, KeyHint(deck, gpu)))


def _unless_empty(place: _Place, items: Iterator[Item]) -> Iterator[Item]:
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty:
        yield place.rejected(_EMPTY)


def _read_path(place: _Place, hint: KeyHint, depth: int = 0) -> Iterator[Item]:
    try:
        mode = os.lstat(place.path).st_mode
    except (OSError, ValueError) as error:
        yield place.rejected(f"cannot be read: {cause(error)}")
        return
    if stat.S_ISDIR(mode):
        yield from _walk(place, hint, depth)
    elif not stat.S_ISREG(mode):
        yield place.rejected("is a link or a special file; need a plain file")
    elif place.is_named(_AUDITS):
        yield _read_audit(place, hint.deck)
    elif place.is_named(_BUNDLES) and not place.is_bundle:
        yield from _read_bundle(place, hint)
    else:
        yield place.rejected(_STRAY)


def _walk(place: _Place, hint: KeyHint, depth: int) -> Iterator[Item]:
    try:
        names = sorted(name for name in os.listdir(place.path) if not name.startswith("."))
    except OSError as error:
        yield place.rejected(f"cannot be read: {cause(error)}")
        return
    if any(mark in names for mark in RUN_MARKS):
        yield from _run_items(place, hint)
    elif names and is_run_id(place.names[-1]):
        yield place.rejected(f"holds neither {' nor '.join(RUN_MARKS)}")
    elif depth > MAX_DEPTH:
        yield place.rejected(f"is more than {MAX_DEPTH} directories deep")
    else:
        for name in names:
            yield from _read_path(place.below(name), hint, depth + 1)


def _run_items(place: _Place, hint: KeyHint) -> Iterator[Item]:
    try:
        record, content = read_directory(place.path, _key(place.names, hint))
    except RecordError as error:
        yield place.rejected(str(error))
        return
    except OSError as error:
        yield place.rejected(f"cannot be read: {cause(error)}")
        return
    yield RunItem(printable(place.label), record, content.blobs())
    for name, reason in sorted(content.left_out):
        yield place.below(name).rejected(reason)


def _key(names: tuple[str, ...], hint: KeyHint) -> RunKey:
    """Return a run's key from what the caller knows and the last three names of its path."""
    deck, gpu, run_id = ("", "", "", *names)[-3:]
    run_id = check_run_id(hint.run_id or run_id, "run directory's name")
    return RunKey(*check_deck(hint.deck or deck, hint.gpu or gpu), run_id)


def _read_bundle(place: _Place, hint: KeyHint) -> Iterator[Item]:
    with tempfile.TemporaryDirectory(prefix="proofline-") as folder:
        root = Path(folder) / "bundle"
        root.mkdir()
        try:
            unpack(place.path, root)
        except BundleError as error:
            yield place.rejected(str(error))
            return
        inside = _Place(root, place.label, ("",), is_bundle=True)
        if any((root / mark).exists() for mark in RUN_MARKS):
            hint = KeyHint(hint.deck, hint.gpu, _bundle_run_id(place, root))
        yield from _unless_empty(place, _walk(inside, hint, depth=0))


def _bundle_run_id(place: _Place, root: Path) -> str | None:
    """Return the id of a run that lies at the top of a bundle: the bundle's name, else the id inside."""
    name = place.names[-1]
    stem = next(name[: -len(end)] for end in _BUNDLES if name.lower().endswith(end))
    if is_run_id(stem):
        return stem
    try:
        return inner_run_id(read_plain_file(root / "result.json"))
    except RecordError:
        return None


def _read_audit(place: _Place, deck: str | None) -> Item:
    if deck is None:
        deck = next((name for name in place.names[-2:-6:-1] if name in load_decks()), None)
    try:
        data = read_plain_file(place.path, MAX_AUDIT_BYTES)
        return AuditItem(printable(place.label), read_audit(data, printable(place.names[-1]), deck), data)
    except (AuditError, RecordError) as error:
        return place.rejected(str(error))
    except OSError as error:
        return place.rejected(f"cannot be read: {cause(error)}")
