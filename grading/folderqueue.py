"""A broker that is a folder: Celery's filesystem transport with messages that appear whole or not at all.

The transport as it comes writes a message where readers already look, so a reader can take half of it, and one that
cannot be parsed ends the worker. Here a message is renamed into place when it is complete, and one that is too large or
malformed is dropped with a line in the log. Whoever writes also removes what nobody reads any more.
"""

import logging
import math
import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps, loads

from grading.transports import FORGOTTEN_SECONDS, Guarded, is_own
from grading.wire import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)
_MOST_BYTES = 2 * MAX_MESSAGE_BYTES
_TIDY_SECONDS = 60.0
_tidied: dict[Path, float] = {}


class Channel(filesystem.Channel):  # type: ignore[misc]
    """The folder's channel."""

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:
        """Write a message beside the queue, then rename it into place."""
        folder = Path(self.data_folder_out)
        name = f"{time.time_ns():020d}_{uuid.uuid4()}.{queue}.msg"
        staged = folder / f".{name}.part"
        staged.write_text(dumps(payload))
        os.rename(staged, folder / name)
        if time.monotonic() - _tidied.get(folder, -math.inf) > _TIDY_SECONDS:
            _tidied[folder] = time.monotonic()
            forget(folder, time.time())

    def _get(self, queue: str) -> Any:
        """Take the oldest message of a queue. Raises Empty."""
        folder, ending = Path(self.data_folder_in), f"{queue}.msg"
        for name in sorted(name for name in os.listdir(folder) if name.partition(".")[2] == ending):
            taken = folder / f".{uuid.uuid4()}.taken"
            try:
                os.rename(folder / name, taken)
            except FileNotFoundError:
                continue
            payload = _read(taken)
            if payload is not None:
                return payload
        raise Empty


class Transport(Guarded, filesystem.Transport):  # type: ignore[misc]
    """The folder's transport."""

    Channel = Channel


def forget(folder: Path, at: float) -> int:
    """Remove old messages of workers' own queues, and what killed processes had in hand; return how many files.

    at  seconds since 1970; old is what was last written more than `FORGOTTEN_SECONDS` before
    """
    count = 0
    for path in folder.iterdir():
        is_left = path.name.startswith(".") and path.suffix in (".part", ".taken")
        if not is_left and not is_own(path.name.partition(".")[2].removesuffix(".msg")):
            continue
        try:
            if path.stat().st_mtime < at - FORGOTTEN_SECONDS:
                path.unlink()
                count += 1
        except FileNotFoundError:
            continue
    return count


def _read(taken: Path) -> Any:
    """Return what was taken, and remove it; None for what is too large or no JSON."""
    try:
        size = taken.stat().st_size
        if size > _MOST_BYTES:
            log.warning("dropped a message of %d bytes; at most %d are read", size, _MOST_BYTES)
            return None
        return loads(taken.read_text())
    except (OSError, ValueError, RecursionError) as error:
        log.warning("dropped a message that cannot be read: %s", type(error).__name__)
    finally:
        taken.unlink(missing_ok=True)
    return None
