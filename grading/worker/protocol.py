"""The control socket: frames of length-limited JSON, and file descriptors beside them.

A frame is a length (four bytes, big-endian) and that many bytes of UTF-8 JSON holding one object. Nothing else is ever
read from a peer: no pickle, no text protocol, no unbounded line.
"""

import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MAX_FRAME_BYTES = 64 * 1024
MAX_TRUSTED_FRAME_BYTES = 4 * 1024 * 1024
_MAX_DESCRIPTORS = 200
_HEADER = struct.Struct("!I")


class ProtocolError(Exception):
    """A peer sent something that is no frame of this protocol."""


class Channel:
    """One end of a control socket.

    limit  the longest frame that is read; the connection is of no use after a longer one
    """

    def __init__(self, connection: socket.socket, limit: int = MAX_FRAME_BYTES) -> None:
        self._socket = connection
        self._limit = limit
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        self._takes_descriptors = False

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def accept_descriptors(self) -> None:
        """Take descriptors that come with frames; without this the kernel closes them on arrival."""
        self._takes_descriptors = True

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one object, and descriptors with it. Raises OSError when the peer is gone."""
        data = json.dumps(message, separators=(",", ":")).encode()
        frame = _HEADER.pack(len(data)) + data
        if descriptors:
            sent = socket.send_fds(self._socket, [frame], list(descriptors))
            frame = frame[sent:]
        self._socket.sendall(frame)

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """Return the next object.

        deadline  on the monotonic clock; None waits for ever
        Raises ProtocolError for anything that is no frame, EOFError at the end, TimeoutError past the deadline.
        """
        while True:
            message = self._take()
            if message is not None:
                return message
            self._wait(deadline)
            self._fill()

    def poll(self) -> dict[str, Any] | None:
        """Return the next object if it is already here, else None. Raises as `receive` does."""
        message = self._take()
        while message is None and select.select([self._socket], [], [], 0)[0]:
            self._fill()
            message = self._take()
        return message

    def receive_hot(self) -> dict[str, Any]:
        """Return the next object without ever sleeping: a core that slept runs the next call slower than a busy one.

        Raises as `receive` does. Only for hosts with a core to spare.
        """
        while (message := self.poll()) is None:
            pass
        return message

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came since the last call."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _wait(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([self._socket], [], [], left)[0]:
            raise TimeoutError("no message came in time")

    def _fill(self) -> None:
        try:
            if self._takes_descriptors:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 65536, _MAX_DESCRIPTORS)
                self._descriptors += descriptors
            else:
                data = self._socket.recv(65536)
        except ConnectionError as error:
            raise EOFError("the peer closed the connection") from error
        if not data:
            if self._buffer:
                raise ProtocolError(f"the connection ended inside a frame, after {len(self._buffer)} bytes")
            raise EOFError("the peer closed the connection")
        self._buffer += data

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if not 2 <= length <= self._limit:
            raise ProtocolError(f"a frame claims {length} bytes; accepted are 2 to {self._limit}")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return _decode(data)


def _decode(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame of {len(data)} bytes is no JSON: {type(error).__name__}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame holds {type(message).__name__}; need an object")
    return message
