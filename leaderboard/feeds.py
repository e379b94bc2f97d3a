"""Atom feeds: releases, corrections, and what changed of one model or one problem. Texts hold no scores."""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.syndication.views import Feed
from django.http import Http404, HttpRequest
from django.utils.feedgenerator import Atom1Feed

from grading.problem import load_decks
from grading.words import counted
from leaderboard.boards.changes import ChangeEvent, list_changes
from leaderboard.boards.releases import count_changes, list_releases
from leaderboard.context import NAME
from leaderboard.models import LanguageModel

_SHOWN = 50
_YEAR = 2026
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_WORDS = {
    "published": "Published",
    "changed": "Score changed",
    "removed": "No longer published",
    "withdrawn": "Withdrawn",
    "withheld": "Withheld since its release",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a permanent name, what happened, where, and when."""

    name: str
    title: str
    text: str
    link: str
    at: datetime.datetime


def tag(name: str) -> str:
    """Return a tag URI, which stays the same whatever becomes of addresses."""
    return f"tag:{urlsplit(settings.SITE_URL).hostname},{_YEAR}:{name}"


def plain(text: str) -> str:
    """Return a text without what XML cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


class EntryFeed(Feed):
    """An Atom feed of entries with permanent ids and addresses of this site only."""

    feed_type = Atom1Feed
    author_name = NAME

    def link(self, obj: Any) -> str:
        """The page that the feed belongs to."""
        return f"{settings.SITE_URL}{self.page(obj)}"

    def feed_url(self, obj: Any) -> str:
        """The feed's own address."""
        return f"{settings.SITE_URL}{self.address(obj)}"

    def feed_guid(self, obj: Any) -> str:
        """The feed's permanent id."""
        return tag(f"feed:{self.address(obj)}")

    def page(self, obj: Any) -> str:
        """The path of the page that the feed belongs to."""
        return "/releases/"

    def address(self, obj: Any) -> str:
        """The path of the feed."""
        raise NotImplementedError

    def item_title(self, item: Entry) -> str:
        """The entry's title."""
        return plain(item.title)

    def item_description(self, item: Entry) -> str:
        """The entry's text, which readers take for HTML."""
        return escape(plain(item.text))

    def item_link(self, item: Entry) -> str:
        """The page that the entry is about."""
        return f"{settings.SITE_URL}{item.link}"

    def item_guid(self, item: Entry) -> str:
        """The entry's permanent id."""
        return tag(item.name)

    def item_pubdate(self, item: Entry) -> datetime.datetime:
        """When it happened."""
        return item.at

    def item_updateddate(self, item: Entry) -> datetime.datetime:
        """When it happened: an entry is one event and never changes."""
        return item.at


class ReleaseFeed(EntryFeed):
    """Every release."""

    title = f"{NAME}: releases"
    subtitle = "Each numbered snapshot of the boards"

    def address(self, obj: Any) -> str:
        """The path of the feed."""
        return "/feed.xml"

    def items(self, obj: Any) -> Iterable[Entry]:
        """Return the newest releases."""
        for line in list_releases()[:_SHOWN]:
            release, counts = line.release, count_changes(line.release)
            yield Entry(
                name=f"release:{release.number}",
                title=f"Release {release.number}",
                text=f"{release.note}\n\n{counted(counts.added, 'cell')} added, "
                f"{counts.changed} changed, {counts.removed} gone.",
                link=f"/releases/{release.number}/",
                at=release.created_at,
            )


class ChangeFeed(EntryFeed):
    """Events of cells."""

    kinds: frozenset[str] = frozenset(_WORDS)

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Remember the moment at which the feed is read."""
        return {"at": request.moment, **kwargs}  # type: ignore[attr-defined]

    def matches(self, obj: Any, event: ChangeEvent) -> bool:
        """Tell whether an event belongs to the feed."""
        return True

    def items(self, obj: Any) -> Iterable[Entry]:
        """Return the newest events."""
        events = (event for event in list_changes(obj["at"]) if event.kind in self.kinds and self.matches(obj, event))
        return [self._entry(event) for event, _ in zip(events, range(_SHOWN), strict=False)]

    def _entry(self, event: ChangeEvent) -> Entry:
        cell = event.cell
        reasons = "; ".join(reason.message for reason in cell.reasons)
        return Entry(
            name=f"{event.kind}:{event.number}:{cell.id}",
            title=f"{_WORDS[event.kind]}: {cell.entrant.label} on {cell.deck}/{cell.problem}, {cell.gpu}",
            text=f"{_WORDS[event.kind]} ({event.source}).{f' Reasons: {reasons}.' if reasons else ''}",
            link=f"/runs/{cell.deck}/{cell.gpu}/{cell.run_id}/",
            at=event.at,
        )


class CorrectionFeed(ChangeFeed):
    """What was published and is not any more, or differs."""

    title = f"{NAME}: corrections"
    subtitle = "Results that were withdrawn, withheld, removed or changed after publication"
    kinds = frozenset({"changed", "removed", "withdrawn", "withheld"})

    def address(self, obj: Any) -> str:
        """The path of the feed."""
        return "/corrections.xml"


class ModelFeed(ChangeFeed):
    """What changed of one model."""

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the model that anything public is known of."""
        found = super().get_object(request, **kwargs)
        known = any(event.cell.entrant.model_slug == found["slug"] for event in list_changes(found["at"]))
        row = LanguageModel.objects.filter(slug=found["slug"]).first() if known else None
        if row is None:
            raise Http404("no such model, or nothing about it is public")
        return {**found, "name": row.name}

    def title(self, obj: Any) -> str:
        """The feed's title."""
        return plain(f"{NAME}: {obj['name']}")

    def matches(self, obj: Any, event: ChangeEvent) -> bool:
        """Tell whether an event is of the model."""
        return event.cell.entrant.model_slug == obj["slug"]

    def page(self, obj: Any) -> str:
        """The model's page."""
        return f"/models/{obj['slug']}/"

    def address(self, obj: Any) -> str:
        """The path of the feed."""
        return f"/models/{obj['slug']}/feed.xml"


class ProblemFeed(ChangeFeed):
    """What changed of one problem."""

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the problem of the catalogue."""
        found = super().get_object(request, **kwargs)
        deck = load_decks().get(found["deck"])
        if deck is None or found["problem"] not in deck.problems:
            raise Http404("no such problem")
        return found

    def title(self, obj: Any) -> str:
        """The feed's title."""
        return f"{NAME}: {obj['deck']}/{obj['problem']}"

    def matches(self, obj: Any, event: ChangeEvent) -> bool:
        """Tell whether an event is of the problem."""
        return (event.cell.deck, event.cell.problem) == (obj["deck"], obj["problem"])

    def page(self, obj: Any) -> str:
        """The problem's page."""
        return f"/problems/{obj['deck']}/{obj['problem']}/"

    def address(self, obj: Any) -> str:
        """The path of the feed."""
        return f"/problems/{obj['deck']}/{obj['problem']}/feed.xml"
