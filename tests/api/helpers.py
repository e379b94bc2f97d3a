"""What the API's tests share that is no fixture."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.test import Client

from grading.problem import load_problem
from leaderboard import selection
from leaderboard.models import Run
from tests.factories import make_benchmark

PROBLEM = load_problem("hard", "07_w4a16_gemm")
Bundle = Callable[..., bytes]
TokenFor = Callable[..., dict[str, str]]


@dataclass(frozen=True)
class Site:
    """Runs by kind; those in `hidden` are no results."""

    runs: dict[str, Run]

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]

    def cell(self, name: str) -> str:
        """The id of the cell of a run."""
        return selection.cell_id(self.runs[name])


def make_log(scale: float) -> str:
    """A log whose numbers no other run has."""
    return make_benchmark(PROBLEM, times=[scale * (1.137 + index * 0.3191) for index in range(len(PROBLEM.shapes))])


def pack_files(files: dict[str, bytes], kind: str = "zip") -> bytes:
    """Return an archive of files."""
    target = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(fileobj=target, mode="w:gz") as packed:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                packed.addfile(member, io.BytesIO(data))
    return target.getvalue()


def body_of(response: object) -> bytes:
    """The whole body, streamed or not."""
    return b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]


def walk(client: Client, address: str) -> Iterator[dict]:
    """Yield every row of a list, page after page."""
    page = client.get(address).json()
    while True:
        yield from page["results"]
        if page["next"] is None:
            return
        page = client.get(address, {"cursor": page["next"]} | _query(address)).json()


def _query(address: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in address.partition("?")[2].split("&") if part)
