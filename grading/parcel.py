"""Files on their way between the web side and a host: a tar.gz that is named by the digest of what it holds.

Both sides check the digest after unpacking, so a parcel can come from anywhere and be kept as long as one likes.
"""

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

from grading.bundle import BundleError, unpack
from grading.warden.intake import bundle_digest


class ParcelError(ValueError):
    """A parcel that is not what it should be; the message is safe to show to users."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return files by path as a tar.gz; the same files always give the same bytes."""
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path]), 0o644
            tar.addfile(entry, io.BytesIO(files[path]))
    return raw.getvalue()


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the plain files below a folder by path; links are passed over."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def open_parcel(packed: bytes, workplace: Path) -> dict[str, bytes]:
    """Return a parcel's files, unpacked within fixed limits. Raises ParcelError.

    workplace  a folder in which a temporary one may be made
    """
    folder = Path(mkdtemp(prefix="parcel-", dir=workplace))
    try:
        path, root = folder / "parcel.tar.gz", folder / "files"
        path.write_bytes(packed)
        root.mkdir()
        unpack(path, root)
        return read_folder(root)
    except BundleError as error:
        raise ParcelError(f"the parcel cannot be opened: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(files: Mapping[str, bytes], digest: str, cache: Path) -> Path:
    """Write files below ``cache/digest`` in one step; return that folder. Raises ParcelError for another digest."""
    if (found := bundle_digest(files)) != digest:
        raise ParcelError(f"the parcel holds {found[:12]}; need {digest[:12]}")
    target = cache / digest
    staging = Path(mkdtemp(prefix=".parcel-", dir=cache))
    for name, data in files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    staging.chmod(0o755)
    try:
        os.rename(staging, target)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        if not target.is_dir():
            raise
    return target


def find_kept(digest: str, cache: Path) -> Path | None:
    """Return a kept parcel's folder if its files are still the ones of the digest; a spoilt one is thrown away."""
    target = cache / digest
    if not target.is_dir():
        return None
    if bundle_digest(read_folder(target)) == digest:
        os.utime(target)
        return target
    shutil.rmtree(target, ignore_errors=True)
    return None
