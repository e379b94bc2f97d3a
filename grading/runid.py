"""Run ids: their grammar, and which problem they name.

``run_id := stamp "_" harness "_" model_slug "_" problem ["_" pid "_" attempt]``; a problem's name may hold ``_``, so it
is matched from the right against the known ones, longest first.

Source: docs/method.md "Records".
"""

import datetime
import re

import msgspec

from grading.problem import Deck, load_decks
from grading.record import MAX_RUN_ID, RUN_ID, RecordError

_GRAMMAR = "<YYYYMMDD>_<HHMMSS>_<harness>_<model>_<problem>"
_PLAIN = re.compile(r"[^\s/\\:\[\]<>\"'`&?#%|*]+")
_STAMP_PARTS = ((0, 4), (4, 6), (6, 8), (9, 11), (11, 13), (13, 15))


class RunId(msgspec.Struct, frozen=True):
    """A run id in its parts; ``suffix`` is ``<pid>_<attempt>`` or empty."""

    stamp: str
    harness: str
    model_slug: str
    problem: str
    suffix: str


def shown(value: object, limit: int = 80) -> str:
    """Return a value as one short printable line for messages."""
    text = repr(value)
    text = text if text.isprintable() else ascii(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_run_id(text: str) -> bool:
    """Tell whether a text has the form of a run id, whatever problem it names."""
    match = RUN_ID.fullmatch(text)
    if match is None or len(text) > MAX_RUN_ID or not text.isprintable() or not _PLAIN.fullmatch(text):
        return False
    try:
        year, month, day, hour, minute, second = (int(text[start:end]) for start, end in _STAMP_PARTS)
        datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return False
    return True


def check_run_id(text: str, field: str) -> str:
    """Return a text that has the form of a run id. Raises RecordError for any other."""
    if not is_run_id(text):
        raise RecordError(f"{field} is {shown(text)}; need {_GRAMMAR} of at most {MAX_RUN_ID} characters")
    return text


def parse_run_id(text: str, deck: str) -> RunId:
    """Return the parts of a run id, its problem being one that the deck has.

    Raises RecordError for another form, or a problem that the deck lacks or has retired.
    """
    check_run_id(text, "run_id")
    stamp, harness, rest = text[:15], *text[16:].split("_", 1)
    for problem in sorted(load_decks()[deck].problems, key=len, reverse=True):
        found = re.fullmatch(rf"(.+)_{re.escape(problem)}(?:_([0-9]{{1,10}}_[0-9]{{1,6}}))?", rest, re.ASCII)
        if found:
            return RunId(stamp, harness, found[1], problem, found[2] or "")
    raise RecordError(f"run_id is {shown(text)}; need one that ends in a problem of deck {deck}: {_accepted(deck)}")


def check_problem(problem: str, deck: str, field: str) -> str:
    """Return a problem id that the deck has. Raises RecordError that lists the accepted ones."""
    entry = load_decks()[deck]
    if problem in entry.problems:
        return problem
    fate = f"retired in deck {deck}" if _is_retired(problem, entry) else f"not in deck {deck}"
    raise RecordError(f"{field} is {shown(problem)}, {fate}; accepted are {_accepted(deck)}")


def check_deck(deck: str, gpu: str) -> tuple[str, str]:
    """Return a deck and one of its GPUs. Raises RecordError that lists the accepted ones."""
    decks = load_decks()
    if deck not in decks:
        raise RecordError(f"deck is {shown(deck)}; accepted are {', '.join(decks)}")
    if gpu not in decks[deck].gpus:
        raise RecordError(f"gpu is {shown(gpu)}; deck {deck} accepts {', '.join(decks[deck].gpus)}")
    return deck, gpu


def _accepted(deck: str) -> str:
    return ", ".join(load_decks()[deck].problems)


def _is_retired(problem: str, deck: Deck) -> bool:
    return any(problem == retired or problem.startswith(f"{retired}_") for retired in deck.retired_ids)
