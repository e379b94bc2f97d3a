"""The control protocol: frames are limited, and noise never does worse than end the connection."""

import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from grading.worker.doorbell import DONE, GO, Doorbell, make_page
from grading.worker.protocol import Channel, ProtocolError

SECONDS = float(os.environ.get("PROOFLINE_FUZZ_SECONDS", "3"))


Pair = Callable[[], tuple[Channel, socket.socket]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Make a channel and its peer's socket; all are closed at the end."""
    made: list[tuple[Channel, socket.socket]] = []

    def make() -> tuple[Channel, socket.socket]:
        ours, theirs = socket.socketpair()
        made.append((Channel(ours), theirs))
        return made[-1]

    yield make
    for channel, peer in made:
        channel.close()
        peer.close()


def frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def test_objects_arrive_in_order_however_they_are_cut(pair: Pair) -> None:
    channel, peer = pair()
    data = frame(b'{"event":"a"}') + frame(b'{"event":"b","n":[1,2]}')
    for byte in data:
        peer.send(bytes([byte]))
    assert channel.receive(time.monotonic() + 1) == {"event": "a"}
    assert channel.poll() == {"event": "b", "n": [1, 2]}
    assert channel.poll() is None


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!I", 1 << 31) + b"A" * 100,
        struct.pack("!I", 0),
        frame(b"[1, 2]"),
        frame(b"null"),
        frame(b"{not json"),
        frame(b"\xff\xfe{}"),
        frame(b'{"a":' + b"[" * 30000 + b"]" * 30000 + b"}"),
        b"GET / HTTP/1.1\r\n",
        b"\x80\x04cos\nsystem\n",
    ],
)
def test_anything_else_is_refused(data: bytes, pair: Pair) -> None:
    channel, peer = pair()
    peer.sendall(data)
    with pytest.raises(ProtocolError):
        channel.receive(time.monotonic() + 1)


def test_an_end_inside_a_frame_is_refused_and_a_clean_end_is_an_end(pair: Pair) -> None:
    channel, peer = pair()
    peer.sendall(b"\x00\x00\x00\x40{")
    peer.close()
    with pytest.raises(ProtocolError):
        channel.receive(time.monotonic() + 1)
    channel, peer = pair()
    peer.close()
    with pytest.raises(EOFError):
        channel.receive(time.monotonic() + 1)


def test_silence_times_out(pair: Pair) -> None:
    channel, _peer = pair()
    with pytest.raises(TimeoutError):
        channel.receive(time.monotonic() + 0.05)


def test_descriptors_of_an_untrusted_peer_are_not_taken(pair: Pair) -> None:
    channel, peer = pair()
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(peer, [frame(b'{"event":"a"}')], [0, 1, 2])
    assert channel.receive(time.monotonic() + 1) == {"event": "a"}
    assert len(os.listdir("/proc/self/fd")) == before


def test_noise_never_does_worse_than_end_the_connection(pair: Pair) -> None:
    rng, until, tried = random.Random(7), time.monotonic() + SECONDS, 0
    seeds = [frame(json.dumps({"event": "called", "number": 3, "claim_ns": 5}).encode()), frame(b"{}"), b""]
    while time.monotonic() < until:
        ours, peer = socket.socketpair()
        channel = Channel(ours)
        data = bytearray(rng.choice(seeds) * rng.randrange(1, 4) + rng.randbytes(rng.randrange(64)))
        for _ in range(rng.randrange(6)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        sender = threading.Thread(target=lambda peer=peer, data=data: (peer.sendall(bytes(data)), peer.close()))
        sender.start()
        try:
            while True:
                assert isinstance(channel.receive(time.monotonic() + 1), dict)
        except (ProtocolError, EOFError):
            tried += 1
        sender.join()
        channel.close()
    assert tried > 20


def test_the_doorbell_is_seen_by_both_and_not_written_by_a_reader() -> None:
    page = make_page()
    with pytest.raises(PermissionError):
        os.ftruncate(page, 0)
    ours, theirs, reader = Doorbell(page), Doorbell(page), Doorbell(page, writable=False)
    ours.ring(GO, 7)
    theirs.wait(GO, 7, time.monotonic() + 1)
    theirs.ring(DONE, 7)
    assert reader.read(DONE) == 7
    with pytest.raises(TypeError):
        reader.ring(DONE, 8)
    with pytest.raises(TimeoutError):
        ours.wait(DONE, 9, time.monotonic() + 0.05)
    os.close(page)
