"""Entry of the oracle process: ``main(control, doorbell, own doorbell, device, pause)``."""

import socket
from collections.abc import Callable
from typing import Any

from grading.worker.doorbell import Doorbell
from grading.worker.protocol import MAX_TRUSTED_FRAME_BYTES, Channel


def main(control: int, bell: int, own_bell: int, device: str, pause_seconds: float) -> None:
    """Serve the warden's commands until it hangs up."""
    channel = Channel(socket.socket(fileno=control), MAX_TRUSTED_FRAME_BYTES)
    import torch

    from grading.oracle.session import Oracle

    if device != "cpu":
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)

    bells = (
        Doorbell(bell, writable=False, pause_seconds=pause_seconds),
        Doorbell(own_bell, pause_seconds=pause_seconds),
    )
    oracle = Oracle(channel, bells, device)
    commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "open": oracle.open,
        "commit": oracle.commit,
        "shape": oracle.shape,
        "weights": oracle.weights,
        "prepare": oracle.prepare,
        "idle": oracle.idle,
        "judge": oracle.judge,
        "reveal": oracle.reveal,
        "calibrate": oracle.calibrate,
    }
    channel.send({"event": "hello"})
    while True:
        try:
            message = channel.receive()
        except EOFError:
            return
        try:
            answer = commands[message["do"]](message)
        except (RuntimeError, ValueError, KeyError, AttributeError, TypeError, OSError, AssertionError) as error:
            answer = {"event": "error", "at": message["do"], "text": f"{type(error).__name__}: {error}"[:2000]}
        channel.send(answer)
