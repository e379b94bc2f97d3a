"""The sitemap: every public page with the date on which what it shows last changed."""

import datetime
from collections.abc import Iterator
from html import escape
from urllib.parse import quote

from django.conf import settings
from django.db.models import Max

from grading.hardware import load_gpus
from grading.problem import load_decks
from leaderboard.boards import visible_runs
from leaderboard.boards.state import State
from leaderboard.models import Release
from leaderboard.representation import rfc3339

_MOST = 50_000
_STATE_PAGES = ("/", "/models/", "/problems/", "/gpus/", "/runs/", "/withheld/", "/releases/", "/methodology/")


def list_pages(state: State, at: datetime.datetime) -> Iterator[tuple[str, datetime.datetime]]:
    """Yield (path, last change) of every public page."""
    runs = list(
        visible_runs(at)
        .annotate(audited_at=Max("audits__ingested_at"), decided_at=Max("decisions__at"))
        .order_by("-run_id")
        .values_list(
            "deck", "gpu", "run_id", "entrant__model__slug", "problem__slug", "ingested_at", "audited_at", "decided_at"
        )
    )
    newest: dict[str, datetime.datetime] = {}
    lines = []
    for deck, gpu, run_id, model, problem, *moments in runs:
        changed = max(moment for moment in moments if moment is not None)
        lines.append((f"/runs/{deck}/{gpu}/{run_id}/", changed))
        for path in (f"/models/{model}/", f"/boards/{deck}/{gpu}/", f"/problems/{deck}/{problem}/", f"/gpus/{gpu}/"):
            newest[path] = max(newest.get(path, changed), changed)
    yield from ((path, state.changed_at) for path in _STATE_PAGES)
    for path in _catalogue_pages():
        newest.setdefault(path, state.changed_at)
    yield from sorted(newest.items())
    yield from ((f"/releases/{number}/", made) for number, made in Release.objects.values_list("number", "created_at"))
    yield from lines


def _catalogue_pages() -> Iterator[str]:
    yield from (f"/gpus/{gpu}/" for gpu in load_gpus())
    for deck in load_decks().values():
        yield from (f"/boards/{deck.id}/{gpu}/" for gpu in deck.gpus)
        yield from (f"/problems/{deck.id}/{problem}/" for problem in deck.problems)


def write_sitemap(state: State, at: datetime.datetime) -> Iterator[str]:
    """Yield the sitemap's lines, at most 50,000 addresses, newest runs first."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    for count, (path, changed) in enumerate(list_pages(state, at)):
        if count == _MOST:
            break
        yield f"<url><loc>{settings.SITE_URL}{escape(quote(path))}</loc><lastmod>{rfc3339(changed)}</lastmod></url>\n"
    yield "</urlset>\n"
