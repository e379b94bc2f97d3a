"""Entry of the worker process: ``main(control descriptor, doorbell descriptor, device, pause)``."""

import os
import socket
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from grading.worker.doorbell import Doorbell
from grading.worker.protocol import Channel


def main(control: int, bell: int, device: str, pause_seconds: float) -> None:
    """Serve the warden's commands until it says ``bye`` or hangs up."""
    channel = Channel(socket.socket(fileno=control))
    channel.accept_descriptors()
    channel.send({"event": "hello", "pid": os.getpid(), "uid": os.getuid()})
    import torch

    from grading.worker.session import Session

    if device != "cpu":
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    session = Session(channel, Doorbell(bell, pause_seconds=pause_seconds), device)
    commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "import": session.import_bundle,
        "model": session.build_model,
        "arenas": session.map_arenas,
        "state": session.load_state,
        "poke": session.poke_state,
        "call": session.call,
        "census": session.census,
        "repeat": session.repeat,
        "identity": session.report_identity,
    }
    versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "triton": _triton_version()}
    channel.send({"event": "loaded_runtime", **versions})
    receive = channel.receive if pause_seconds else channel.receive_hot
    while (message := receive())["do"] != "bye":
        try:
            answer = commands[message["do"]](message)
        except Exception as error:  # noqa: BLE001 (border to untrusted code)
            answer = {"event": "error", "at": message["do"], "text": f"{type(error).__name__}: {error}"[:2000]}
        channel.send(answer)
    sys.exit(0)


def _triton_version() -> str | None:
    """Return the version that is installed; nothing is imported for it."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return None
