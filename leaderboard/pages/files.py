"""Files of a run: read with line anchors, compared with another run's, or taken as they are."""

import posixpath

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.boards import latest_release, read_cells, read_run
from leaderboard.boards.files import TextFile, open_paths, read_text
from leaderboard.boards.runs import RunView, read_file
from leaderboard.boards.sources import colour, diff, rivals
from leaderboard.pages.public import public_page
from leaderboard.pages.query import is_staff, text_filters


@public_page
def run_file(request: HttpRequest, deck: str, gpu: str, run_id: str, path: str) -> HttpResponse:
    """Show one file of a run. A withheld run's files hold its score: staff only."""
    view, file = _open(request, deck, gpu, run_id, path)
    asked = text_filters(request, ("against", "raw"))
    if asked["raw"]:
        return _take(view, path)
    column = read_cells(latest_release(), timezone.now(), deck=deck, gpu=gpu, problem=view.summary.problem)
    context = {
        "view": view,
        "run": view.summary,
        "file": file,
        "files": [held for held in view.files if held.path in open_paths(view, is_staff=is_staff(request))],
        "rivals": rivals(view, column) if _is_source(view, path) else (),
    }
    if asked["against"]:
        other, older = _open(request, deck, gpu, asked["against"], path)
        context |= {"other": other.summary, "older": older, "diff": diff(older.lines, file.lines)}
        return render(request, "diff.html", context)
    return render(request, "file.html", context | {"lines": colour(file)})


def _open(request: HttpRequest, deck: str, gpu: str, run_id: str, path: str) -> tuple[RunView, TextFile]:
    """Return a run and one of its files, or answer 404 for a run or a file that this reader may not open."""
    staff = is_staff(request)
    view = read_run(deck, gpu, run_id, timezone.now(), is_staff=staff)
    is_open = view is not None and path in open_paths(view, is_staff=staff)
    text = read_text(view, path) if view is not None and is_open else None
    if view is None or text is None:
        raise Http404("no such file, or it is not public")
    return view, text


def _is_source(view: RunView, path: str) -> bool:
    return any(file.path == path and file.role in ("solution", "sidecar") for file in view.files)


def _take(view: RunView, path: str) -> HttpResponse:
    """Return a file's bytes to be saved, never to be shown by the browser as anything else."""
    response = HttpResponse(read_file(view, path) or b"", content_type="text/plain; charset=utf-8")
    name = posixpath.basename(path).encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
