"""Bundles: zip and tar.gz files from strangers, unpacked into an empty directory within fixed limits.

A bundle is taken whole or not at all. Only plain files and directories with plain relative names are accepted; nested
archives stay plain files. Sizes are counted while reading, whatever the headers claim.

Source: docs/method.md "Archives".
"""

import gzip
import os
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

MAX_BUNDLE_BYTES = 256 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_MEMBERS = 10_000
MAX_RATIO = 200
MAX_DEPTH = 12
MAX_NAME_BYTES = 1000
_FREE_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_MAX_DIRECTORY_BYTES = 8 * 1024 * 1024
_ZIP_END, _ZIP64_LOCATOR = b"PK\x05\x06", b"PK\x06\x07"
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


class BundleError(ValueError):
    """A bundle that is refused as a whole; the message is safe to show to users."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Budget:
    """What a bundle may still hold: members, bytes, and names not used yet."""

    def __init__(self, packed_bytes: int) -> None:
        self.most_bytes = min(MAX_TOTAL_BYTES, max(packed_bytes * MAX_RATIO, _FREE_BYTES))
        self.read_bytes = 0
        self.members = 0
        self.names: dict[str, tuple[str, bool]] = {}

    def spend(self, count: int) -> None:
        self.read_bytes += count
        if self.read_bytes > self.most_bytes:
            raise BundleError(f"bundle unpacks to more than {self.most_bytes} bytes; its size allows no more")

    def admit(self, name: str, is_folder: bool) -> PurePosixPath:
        """Return a member's path below the root. Raises BundleError for a name that is not plain, or not new."""
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise BundleError(f"bundle has more than {MAX_MEMBERS} members")
        path = _plain_path(name)
        for parent in path.parents:
            if parent.parts:
                self._claim(str(parent), is_folder=True)
        self._claim(str(path), is_folder)
        return path

    def _claim(self, name: str, is_folder: bool) -> None:
        """Take a name: a folder may come again in the same spelling, a file never."""
        folded = unicodedata.normalize("NFC", name).casefold()
        known = self.names.get(folded)
        if known is not None and (not is_folder or known != (name, True)):
            raise BundleError(f"bundle holds {known[0][:100]!a} and {name[:100]!a}; need different names in any case")
        self.names[folded] = (name, is_folder)


def unpack(path: Path, root: Path) -> None:
    """Unpack a ``.zip`` or ``.tar.gz`` file below an empty directory.

    Raises BundleError with the reason; the directory may then hold a part of the bundle and is to be thrown away.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BUNDLE_BYTES:
                raise BundleError(f"bundle is {size} bytes long; at most {MAX_BUNDLE_BYTES} are accepted")
            if path.name.lower().endswith(".zip"):
                _unpack_zip(file, size, root)
            else:
                _unpack_tar(file, size, root)
    except _BROKEN as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"bundle is broken: {str(error)[:200]!a}") from error


def _plain_path(name: str) -> PurePosixPath:
    text = name.rstrip("/")
    parts = text.split("/")
    if text.startswith("./"):
        parts = parts[1:]
    is_plain = text.isprintable() and "\\" not in text and ":" not in text and len(name.encode()) <= MAX_NAME_BYTES
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise BundleError(f"bundle holds the name {name[:100]!a}; need a plain relative path")
    if len(parts) > MAX_DEPTH + 1:
        raise BundleError(f"bundle holds {name[:100]!a}, more than {MAX_DEPTH} directories deep")
    return PurePosixPath(*parts)


def _unpack_zip(file: IO[bytes], size: int, root: Path) -> None:
    _check_zip_directory(file, size)
    budget = _Budget(size)
    with zipfile.ZipFile(file) as bundle:
        for member in bundle.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BundleError(f"bundle member {member.filename[:100]!a} is a link or a special file")
            if member.flag_bits & 1:
                raise BundleError(f"bundle member {member.filename[:100]!a} is encrypted")
            target = root / budget.admit(member.filename, member.is_dir())
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            with bundle.open(member) as source:
                _copy(source, target, budget)


def _check_zip_directory(file: IO[bytes], size: int) -> None:
    """Refuse a central directory that is large, or in the 64-bit form, before it is read into memory."""
    tail_size = min(size, 22 + 65_535 + 20)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    file.seek(0)
    end = tail.rfind(_ZIP_END)
    if end < 0:
        raise BundleError("bundle is broken: no zip directory")
    if _ZIP64_LOCATOR in tail[max(end - 20, 0) : end]:
        raise BundleError("bundle uses the 64-bit zip form, which no bundle within the limits needs")
    if int.from_bytes(tail[end + 12 : end + 16], "little") > _MAX_DIRECTORY_BYTES:
        raise BundleError(f"bundle has more than {MAX_MEMBERS} members")


class _Member(tarfile.TarInfo):
    """A tar header that is refused at once when it is damaged, or large enough to fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf and not any(buf):
                raise
            raise BundleError(f"bundle is broken: {error}") from error
        if member.type in _LONG_HEADERS and member.size > _CHUNK_BYTES:
            raise BundleError("bundle has a member name that is too long")
        return member


class _Counted:
    """A stream of unpacked bytes that is charged to the budget."""

    def __init__(self, source: _Readable, budget: _Budget) -> None:
        self.source, self.budget = source, budget

    def read(self, size: int, /) -> bytes:
        data = self.source.read(min(size, _CHUNK_BYTES))
        self.budget.spend(len(data))
        return data


def _unpack_tar(file: IO[bytes], size: int, root: Path) -> None:
    budget = _Budget(size)
    with gzip.GzipFile(fileobj=file, mode="rb") as source:
        stream = _Counted(source, budget)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as bundle:  # type: ignore[call-overload]
            for member in bundle:
                if not (member.isreg() or member.isdir()) or member.issparse():
                    raise BundleError(f"bundle member {member.name[:100]!a} is a link or a special file")
                if member.isdir() and member.name in ("", ".", "./"):
                    continue
                target = root / budget.admit(member.name, member.isdir())
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                content = bundle.extractfile(member)
                if content is None:
                    raise BundleError(f"bundle member {member.name[:100]!a} has no content")
                _copy(content, target, _Budget(MAX_TOTAL_BYTES))
        while stream.read(_CHUNK_BYTES):
            pass


def _copy(source: _Readable, target: Path, budget: _Budget) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with target.open("xb") as file:
        while data := source.read(_CHUNK_BYTES):
            size += len(data)
            budget.spend(len(data))
            if size > MAX_FILE_BYTES:
                raise BundleError(f"bundle member {target.name[:100]!a} is longer than {MAX_FILE_BYTES} bytes")
            file.write(data)
