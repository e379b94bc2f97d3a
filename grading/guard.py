"""The gate before Celery: what is no task of this application is dropped before any of Celery's code looks at it.

Celery itself ends or restarts a worker on some malformed tasks without acknowledging them, so that they come back for
ever.
"""

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import KombuError

from grading.wire import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)
_MOST_BYTES = MAX_MESSAGE_BYTES + 64 * 1024


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """A consumer that takes whole tasks which it knows, and nothing else."""

    def create_task_handler(self, *given: Any, **named: Any) -> Callable[[Any], None]:
        """Return Celery's own handler behind the gate."""
        handle = super().create_task_handler(*given, **named)

        def take(message: Any) -> None:
            fault = find_fault(message, self.strategies)
            if fault is None:
                handle(message)
                return
            log.warning("dropped a message: %s", fault)
            message.reject_log_error(log, self.connection_errors)

        return take


def find_fault(message: Any, known: Any) -> str | None:
    """Return why a message is no task that may run, or None.

    known  the names of this application's tasks
    """
    headers = message.headers if isinstance(message.headers, dict) else {}
    if message.content_type != "application/json":
        return f"content type is {str(message.content_type)[:60]!r}; need application/json"
    if len(message.body or b"") > _MOST_BYTES:
        return f"it has {len(message.body)} bytes; at most {_MOST_BYTES} are taken"
    if not isinstance(headers.get("task"), str) or headers["task"] not in known:
        return f"task {str(headers.get('task'))[:60]!r} is not known here"
    if not isinstance(headers.get("id"), str) or headers.get("eta") or headers.get("expires"):
        return "it has no id, or a time of its own"
    return _body_fault(message)


def _body_fault(message: Any) -> str | None:
    try:
        payload = message.decode()
    except (KombuError, ValueError, LookupError, RecursionError) as error:
        return f"it cannot be decoded: {type(error).__name__}"
    if not (isinstance(payload, list) and len(payload) == 3):
        return "its body is no call"
    given, named, more = payload
    is_plain = isinstance(given, list) and isinstance(named, dict) and isinstance(more, dict)
    if not is_plain or any(more.get(name) for name in ("callbacks", "errbacks", "chain", "chord")):
        return "its body is no plain call"
    return None
