"""Files of an archive as text with numbered lines."""

from dataclasses import dataclass

from grading.integrity import may_publish_transcript
from leaderboard.boards.runs import RunView, read_file

MAX_LINES = 5_000
MAX_LINE = 2_000


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's first lines. `lines` is empty for a binary file."""

    path: str
    digest: str
    size_bytes: int
    lines: tuple[str, ...]
    is_binary: bool
    is_cut: bool


def open_paths(view: RunView, *, is_staff: bool) -> frozenset[str]:
    """Return the files that a reader may open: all of a published run; else none, since its logs hold its score.

    A transcript in which a rule saw a secret is for staff only.
    """
    if is_staff:
        return frozenset(entry.path for entry in view.files)
    with_transcripts = may_publish_transcript(finding.code for finding in view.findings)
    return frozenset(
        entry.path for entry in view.files if view.is_published and (with_transcripts or entry.role != "transcript")
    )


def read_text(view: RunView, path: str) -> TextFile | None:
    """Return one file of a run's archive, or None where it has no such file or the bytes were not kept."""
    content = read_file(view, path)
    if content is None:
        return None
    entry = next(entry for entry in view.files if entry.path == path)
    is_binary = b"\0" in content[:8192]
    lines = [] if is_binary else content.decode("utf-8", "replace").splitlines()
    return TextFile(
        path=path,
        digest=entry.digest,
        size_bytes=entry.size_bytes,
        lines=tuple(line[:MAX_LINE] for line in lines[:MAX_LINES]),
        is_binary=is_binary,
        is_cut=len(lines) > MAX_LINES or any(len(line) > MAX_LINE for line in lines[:MAX_LINES]),
    )
