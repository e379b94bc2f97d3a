"""Brokers that survive what strangers put into them: kombu's transports, with malformed messages dropped.

As they come, these transports raise inside the worker's loop on anything that is no message, and a worker that is
restarted by it may meet the same bytes again. Here such bytes are dropped with a line in the log. RabbitMQ parses its
own frames; what is no task there is dropped by `grading.guard`.

A worker has queues of its own, and nobody reads them when it is gone. What lies there for longer than any message is
accepted is forgotten: RabbitMQ lets such a queue expire by itself, on Redis its key is given a time to live, and the
folder's transport removes old files.
"""

import base64
import binascii
import logging
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

from grading.wire import MAX_AGE_SECONDS

log = logging.getLogger(__name__)
FORGOTTEN_SECONDS = 2 * MAX_AGE_SECONDS
_ALIASES = {
    "filesystem": "grading.folderqueue:Transport",
    "redis": f"{__name__}:RedisTransport",
    "rediss": f"{__name__}:RedisTransport",
}


def register() -> None:
    """Let the brokers' addresses mean the guarded transports in this process."""
    TRANSPORT_ALIASES.update(_ALIASES)


def is_own(queue: str) -> bool:
    """Tell whether a queue belongs to one worker: ``inbox.<instance>``, ``gpu.<KEY>.<instance>``."""
    kind, *names = queue.split(".")
    return (kind, len(names)) in (("inbox", 1), ("gpu", 2))


def is_message(raw: Any) -> bool:
    """Tell whether something is a message of kombu's virtual transports, whatever it says."""
    if not (isinstance(raw, dict) and isinstance(raw.get("properties"), dict) and isinstance(raw.get("body"), str)):
        return False
    properties = raw["properties"]
    texts = (raw.get("content-type"), raw.get("content-encoding"), properties.get("delivery_tag"))
    if not all(isinstance(text, str) for text in texts):
        return False
    if not (isinstance(raw.get("headers"), dict) and isinstance(properties.get("delivery_info"), dict)):
        return False
    return _is_body(raw["body"], properties.get("body_encoding"))


def _is_body(body: str, encoding: Any) -> bool:
    if encoding is None:
        return True
    try:
        base64.b64decode(body)
    except (binascii.Error, ValueError):
        return False
    return bool(encoding == "base64")


class Guarded:
    """What a transport does before it hands a message on."""

    def _deliver(self, message: Any, queue: str) -> None:
        if is_message(message):
            super()._deliver(message, queue)  # type: ignore[misc]
        else:
            log.warning("dropped what is no message from queue %s", queue)


class RedisChannel(redis.Channel):  # type: ignore[misc]
    """A Redis channel that drops what is no JSON, and lets a worker's own queues expire whoever writes to them."""

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        if is_own(queue):
            self._expires[queue] = FORGOTTEN_SECONDS * 1000
        super()._put(queue, message, **options)

    def _do_restore_message(
        self, payload: Any, exchange: str, routing_key: str, pipe: Any, leftmost: bool = False
    ) -> None:
        """Hand out again what a worker held when it died, which may be from its own queue."""
        super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)
        for queue in self._lookup(exchange, routing_key):
            if is_own(queue):
                pipe.pexpire(self._q_for_pri(queue, 0), FORGOTTEN_SECONDS * 1000)

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (ValueError, RecursionError) as error:
            log.warning("dropped what is no message: %s", type(error).__name__)
            raise Empty from error


class RedisTransport(Guarded, redis.Transport):  # type: ignore[misc]
    """Redis."""

    Channel = RedisChannel
