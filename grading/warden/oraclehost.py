"""The oracle's process and the doorbell pages, which may serve several passes: it never sees a bundle.

Every pass opens its problem anew and draws a secret of its own.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from grading.card import name_inside
from grading.warden.cores import Cores, split_cores
from grading.warden.process import LIMITS, ROOT, Child, Limits, Program
from grading.worker.doorbell import Doorbell, make_page
from grading.worker.protocol import MAX_TRUSTED_FRAME_BYTES

PAUSE_SECONDS = 2e-5
_UID = 64000


@dataclass
class OracleHost:
    """An oracle for one device and the references below some folders. Close it, or use it as a context manager."""

    device: str
    shown: list[Path]
    limits: Limits = LIMITS
    is_dirty: bool = False
    cores: Cores = field(init=False)
    child: Child = field(init=False)
    bell: Doorbell = field(init=False)
    own_bell: Doorbell = field(init=False)
    page: int = field(init=False)
    count: int = 0
    hello: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cores = split_cores(self.device)
        self.start()

    def start(self) -> None:
        """Start a fresh process with fresh pages; an earlier one must have been closed."""
        pages = [make_page() for _ in range(2)]
        shown = [ROOT / "grading", *(path for path in self.shown if not path.is_relative_to(ROOT / "grading"))]
        arguments = (*pages, name_inside(self.device), self.pause_seconds)
        program = Program(
            "oracle",
            "grading.oracle.main",
            arguments,
            _UID + os.getpid() % 1000,
            shown,
            limits=self.limits,
            device=self.device,
            cores=self.cores.oracle,
        )
        self.child = Child(program, pages, MAX_TRUSTED_FRAME_BYTES)
        self.child.channel.accept_descriptors()
        self.bell = Doorbell(pages[0], pause_seconds=self.pause_seconds)
        self.own_bell = Doorbell(pages[1], pause_seconds=self.pause_seconds)
        self.page = pages[0]
        self.hello, self.count, self.is_dirty = {}, 0, False
        os.close(pages[1])

    @property
    def pause_seconds(self) -> float:
        """Return how long the doorbell's readers sleep between looks; 0 where each has a core of its own."""
        return 0.0 if self.cores.is_split else PAUSE_SECONDS

    @property
    def is_alive(self) -> bool:
        """Tell whether the process still runs."""
        return self.child.exit_code(0) is None

    def greet(self, seconds: float) -> None:
        """Wait until the process is up. Raises what `Child.receive` raises."""
        if not self.hello:
            self.hello = self.child.receive(monotonic() + seconds)

    def restart(self) -> None:
        """End the process and start another, after a pass that left it in the middle of something."""
        self.close()
        self.start()

    def close(self) -> None:
        """End the process."""
        self.child.close()
        with contextlib.suppress(OSError):
            os.close(self.page)

    def __enter__(self) -> "OracleHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
