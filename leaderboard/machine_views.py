"""What machines fetch outside the API: badges, charts, oEmbed, the sitemap, llms.txt."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import Resolver404, resolve, reverse

from grading.problem import load_decks
from leaderboard import boards, svg
from leaderboard.boards import Cell
from leaderboard.cards import HEIGHT, WIDTH
from leaderboard.context import NAME, TAGLINE
from leaderboard.memory import read_snapshot
from leaderboard.models import ReleasedCell
from leaderboard.sitemap import write_sitemap

_SVG = "image/svg+xml; charset=utf-8"
_LONGEST_CELL = 300
_SIZE = re.compile(r'width="(\d+)" height="(\d+)"')


def _find_cell(request: HttpRequest, name: str) -> Cell | None:
    state, at = request.public_state, request.moment  # type: ignore[attr-defined]
    cells = read_snapshot(state, boards.latest_release(), at).cells
    return next((cell for cell in cells if cell.id == name), None)


def _was_published(name: str) -> bool:
    """Tell whether an older release shows a cell, so that its name is public."""
    is_plain = name.isprintable() and len(name) <= _LONGEST_CELL
    return is_plain and ReleasedCell.objects.filter(cell=name, status=ReleasedCell.Status.PUBLISHED).exists()


def badge(request: HttpRequest, cell: str) -> HttpResponse:
    """Return a cell's badge; grey where it has no score, and also, with 404, where there is no such cell."""
    found = _find_cell(request, cell)
    if found is None and not _was_published(cell):
        return HttpResponse(svg.badge(None), status=404, content_type=_SVG)
    return HttpResponse(svg.badge(found, "no longer published"), content_type=_SVG)


def badge_data(request: HttpRequest, cell: str) -> HttpResponse:
    """Return a cell's badge as shields.io reads it."""
    found = _find_cell(request, cell)
    is_known = found is not None or _was_published(cell)
    message = "no longer published" if is_known else "unknown"
    data = {
        "schemaVersion": 1,
        "label": f"{found.problem} on {found.gpu}" if found else NAME,
        "message": svg.score_text(found) if found else message,
        "color": "brightgreen" if found and found.score is not None else "lightgrey",
        "isError": not is_known,
        "cacheSeconds": 300,
    }
    return HttpResponse(orjson.dumps(data), status=200 if is_known else 404, content_type="application/json")


def chart(request: HttpRequest, deck: str, gpu: str, problem: str) -> HttpResponse:
    """Return a chart of one column of a board."""
    held = load_decks().get(deck)
    if held is None or problem not in held.problems or gpu not in held.gpus:
        return HttpResponse(svg.badge(None, "no such chart"), status=404, content_type=_SVG)
    state, at = request.public_state, request.moment  # type: ignore[attr-defined]
    cells = read_snapshot(state, boards.latest_release(), at).cells
    column = [cell for cell in cells if (cell.deck, cell.gpu, cell.problem) == (deck, gpu, problem)]
    return HttpResponse(svg.column_chart(f"{held.problems[problem].title} on {gpu}", column), content_type=_SVG)


def oembed(request: HttpRequest) -> HttpResponse:
    """Return the oEmbed document of a badge, a chart or a page: always a picture, never a frame or a script."""
    if request.GET.get("format", "json") != "json":
        return _refuse("only format=json is answered", 501)
    picture = _picture_of(request, request.GET.get("url", ""))
    if picture is None:
        return _refuse("url is none of a badge, a chart, a board, a problem or a run with results to show", 404)
    data = {
        "type": "photo", "version": "1.0", "title": picture.title, "url": f"{settings.SITE_URL}{picture.path}",
        "width": picture.width, "height": picture.height, "provider_name": NAME, "provider_url": settings.SITE_URL,
        "cache_age": 300,
    }  # fmt: skip
    return HttpResponse(orjson.dumps(data), content_type="application/json")


def _refuse(text: str, status: int) -> HttpResponse:
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class _Picture:
    """What stands for an address: where it is, what it shows, and its size in pixels."""

    path: str
    title: str
    width: int
    height: int


def _picture_of(request: HttpRequest, url: str) -> _Picture | None:
    """Return the picture that stands for an address of this site."""
    try:
        site, given = urlsplit(settings.SITE_URL), urlsplit(url[:2000])
    except ValueError:
        return None
    if (given.scheme, given.netloc) != (site.scheme, site.netloc):
        return None
    try:
        match = resolve(unquote(given.path))
    except Resolver404:
        return None
    maker = _PICTURES.get(match.url_name or "")
    return maker(request, match.kwargs) if maker else None


def _measured(path: str, title: str, text: str) -> _Picture:
    size = _SIZE.search(text)
    return _Picture(path, title, *((int(size[1]), int(size[2])) if size else (0, 0)))


def _chart_picture(request: HttpRequest, given: dict[str, str]) -> _Picture | None:
    answer = chart(request, **given)
    if answer.status_code != 200:
        return None
    title = f"{given['problem']} on {given['gpu']}"
    return _measured(reverse("chart", kwargs=given), title, answer.content.decode())


def _problem_picture(request: HttpRequest, given: dict[str, str]) -> _Picture | None:
    """Return the chart of the problem's first GPU with a published cell."""
    deck = load_decks().get(given["deck"])
    cells = read_snapshot(request.public_state, boards.latest_release(), request.moment).cells  # type: ignore[attr-defined]
    shown = {cell.gpu for cell in cells if cell.is_published and (cell.deck, cell.problem) == tuple(given.values())}
    gpu = next((key for key in deck.gpus if key in shown), None) if deck else None
    return _chart_picture(request, {**given, "gpu": gpu}) if gpu else None


def _board_picture(request: HttpRequest, given: dict[str, str]) -> _Picture | None:
    board = boards.read_board(given["deck"], given["gpu"], request.moment)  # type: ignore[attr-defined]
    if board is None:
        return None
    return _Picture(reverse("board_card", kwargs=given), f"{board.deck.title} on {board.gpu_name}", WIDTH, HEIGHT)


def _badge_picture(request: HttpRequest, given: dict[str, str]) -> _Picture | None:
    cell = _find_cell(request, given["cell"])
    return _cell_picture(cell) if cell else None


def _run_picture(request: HttpRequest, given: dict[str, str]) -> _Picture | None:
    state, at = request.public_state, request.moment  # type: ignore[attr-defined]
    cells = read_snapshot(state, boards.latest_release(), at).cells
    key = (given["deck"], given["gpu"], given["run_id"])
    cell = next((cell for cell in cells if (cell.deck, cell.gpu, cell.run_id) == key), None)
    return _cell_picture(cell) if cell else None


def _cell_picture(cell: Cell) -> _Picture:
    title = f"{cell.entrant.label}: {cell.problem} on {cell.gpu}"
    return _measured(f"/badge/{cell.id}.svg", title, svg.badge(cell))


_PICTURES: dict[str, Callable[[HttpRequest, dict[str, str]], _Picture | None]] = {
    "badge": _badge_picture,
    "board": _board_picture,
    "chart": _chart_picture,
    "problem": _problem_picture,
    "run": _run_picture,
}


def sitemap(request: HttpRequest) -> StreamingHttpResponse:
    """Return the sitemap."""
    lines = write_sitemap(request.public_state, request.moment)  # type: ignore[attr-defined]
    return StreamingHttpResponse(lines, content_type="application/xml; charset=utf-8")


def llms(request: HttpRequest) -> HttpResponse:
    """Tell language models what there is and how to read it."""
    release = boards.latest_release()
    text = f"""# {NAME}

> {TAGLINE[0].upper()}{TAGLINE[1:]}. Latest release: {release.number if release else "none yet"}.

A number here is recomputed from per-shape timings, audited by one person and approved by another. A cell without a
score is withheld or failed; its reasons say why. Do not repeat a withheld run's reported number as a result. Cite the
release.

## Data

- [Cells]({settings.SITE_URL}/api/v1/cells): every cell of the latest release as JSON; also cells.csv and cells.ndjson
- [Runs]({settings.SITE_URL}/api/v1/runs): every public run; one run in full under /api/v1/runs/DECK/GPU/RUN_ID
- Grades of our own: /api/v1/runs/DECK/GPU/RUN_ID/verifications lists them and, by POST with a token, asks for one;
  /api/v1/jobs/NUMBER says how far it is and what came of it
- [Releases]({settings.SITE_URL}/api/v1/releases): each with an archive of everything, checksummed
- [OpenAPI]({settings.SITE_URL}/api/v1/openapi.json) and [documentation]({settings.SITE_URL}/api/v1/docs)
- Any page's data is at the page's address with .json in place of the last slash

## Pages

- [Boards]({settings.SITE_URL}/): entrants by problems, per deck and GPU
- [Methodology]({settings.SITE_URL}/methodology/): how scores are made and which rules withhold them
- [Withheld]({settings.SITE_URL}/withheld/): what is not a result, and why
- [Corrections]({settings.SITE_URL}/corrections.xml): what was published and is not any more
"""
    return HttpResponse(text, content_type="text/plain; charset=utf-8")
