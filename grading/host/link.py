"""A worker's line to the control side: signed questions, and answers from the worker's own inbox.

A broker that is gone is no error here: a question then has no answer, and the next one connects again.
"""

import logging
from queue import Empty
from time import monotonic, time
from typing import Any

from celery import Celery
from kombu import Connection
from kombu.exceptions import DecodeError, KombuError
from kombu.simple import SimpleQueue

from grading.tasks import CONTROL_QUEUE, CONTROL_TASK, inbox
from grading.wire import Down, HostKey, Up, WireError, check_envelope, read_down, read_envelope, seal

log = logging.getLogger(__name__)


class Link:
    """One connection to the broker, for one thread at a time."""

    def __init__(self, app: Celery, key: HostKey, gpu: str, instance: str) -> None:
        self._app, self._key, self._sender = app, key, (gpu, instance)
        self._connection: Connection | None = None
        self._inbox: SimpleQueue | None = None

    def tell(self, message: Up) -> bool:
        """Send a message that needs no answer; tell whether the broker took it."""
        return self._send(message) is not None

    def ask(self, message: Up, wait_seconds: float) -> Down | None:
        """Send a question and return its answer, or None where none came in time."""
        deadline = monotonic() + wait_seconds
        if not self._open_inbox():
            return None
        nonce = self._send(message)
        if nonce is None:
            return None
        while (left := deadline - monotonic()) > 0:
            try:
                answer = self._receive(nonce, left)
            except Empty:
                return None
            except self._faults() as error:
                self._drop(error)
                return None
            if answer is not None:
                return answer
        return None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._inbox = None

    def _send(self, message: Up) -> str | None:
        text = seal(message, self._key, "up", self._sender)
        try:
            connection = self._connect()
            self._app.send_task(CONTROL_TASK, [text], queue=CONTROL_QUEUE, connection=connection, retry=False)
        except self._faults() as error:
            self._drop(error)
            return None
        return read_envelope(text).nonce

    def _receive(self, nonce: str, seconds: float) -> Down | None:
        """Return the next message if it answers the question, else None. Raises Empty when the time is over."""
        assert self._inbox is not None
        message = self._inbox.get(timeout=seconds)
        message.ack()
        try:
            envelope = read_envelope(message.payload)
            check_envelope(envelope, self._key, "down", time())
            return read_down(envelope) if envelope.nonce == nonce else None
        except (WireError, DecodeError) as error:
            log.warning("refused an answer: %s", error)
            return None

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, timeout=5)
        return self._connection

    def _open_inbox(self) -> bool:
        try:
            if self._inbox is None:
                channel = self._connect().channel()
                self._inbox = SimpleQueue(channel, inbox(self._sender[1]), accept=["json"])
        except self._faults() as error:
            self._drop(error)
            return False
        return True

    def _drop(self, error: BaseException) -> None:
        log.warning("the broker does not answer: %s", str(error)[:200])
        try:
            self.close()
        except self._faults():
            self._connection = self._inbox = None

    def _faults(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = (OSError, KombuError)
        if self._connection is not None:
            found += tuple(self._connection.connection_errors) + tuple(self._connection.channel_errors)
        return found
