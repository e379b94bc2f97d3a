"""Query parameters: what each accepts, as types that OpenAPI and the parser share."""

import datetime
import re
from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import quote, unquote

from ninja import Schema
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from grading.hardware import load_gpus
from grading.integrity import RULES
from grading.problem import load_decks
from grading.source.framework import FRAMEWORKS
from leaderboard.boards.listing import CELL_SORTS, RUN_SORTS, Position
from leaderboard.service.minutes import MINUTES

MAX_PAGE = 5000
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d))?", re.ASCII)
_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")
_PLAIN = r"[^\u0000-\u001f\u007f]"
_UTC = datetime.UTC
STATUSES = ("published", "withheld", "failed")


def one_of(values: Iterable[str]) -> Any:
    """Return the type of a text that is one of the given ones."""
    accepted = list(values)

    def check(value: Any) -> str:
        if value not in accepted:
            raise ValueError(f"{str(value)[:60]!r} is not accepted; accepted are {', '.join(accepted)}")
        return str(value)

    return Annotated[str, AfterValidator(check), WithJsonSchema({"type": "string", "enum": accepted})]


def _check_text(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("holds a control character")
    return value


def whole(low: int, high: int) -> Any:
    """Return the type of a whole number within bounds."""

    def check(value: Any) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"-?[0-9]{1,12}", str(value), re.ASCII) or not low <= int(value) <= high:
            raise ValueError(f"{str(value)[:60]!r} is not accepted; need a whole number from {low} to {high}")
        return int(value)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Annotated[int, BeforeValidator(check), WithJsonSchema(schema)]


def _flag(value: Any) -> bool:
    if value not in ("true", "false", True, False):
        raise ValueError(f"{str(value)[:60]!r} is not accepted; accepted are true, false")
    return value in ("true", True)


def _moment(value: Any) -> datetime.datetime:
    text = str(value)
    if not _MOMENT.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not accepted; need an RFC 3339 date or time such as 2026-07-01T00:00:00Z")
    try:
        found = datetime.datetime.fromisoformat(text.upper())
        return (found if found.tzinfo else found.replace(tzinfo=_UTC)).astimezone(_UTC)
    except OverflowError:
        return datetime.datetime.min.replace(tzinfo=_UTC) if text < "5" else datetime.datetime.max.replace(tzinfo=_UTC)


def _cursor(value: Any) -> tuple[int, Position]:
    release, separator, rest = str(value).partition("~")
    key, second, name = rest.partition("~")
    is_known = separator and second and release.isascii() and release.isdigit() and len(release) <= 9
    if not is_known or len(str(value)) > 600 or _CONTROL.search(rest):
        raise ValueError("was not given out by this API")
    if key.startswith("'"):
        return int(release), Position(unquote(key[1:]).replace("\0", ""), name)
    return int(release), Position(float(key) if _NUMBER.fullmatch(key) else None, name)


def write_cursor(release: int | None, position: Position) -> str:
    """Return a cursor: the release it is frozen to (0 = none), the sort value, and the id of the last row."""
    value = position.value
    key = (
        ""
        if value is None
        else repr(float(value))
        if isinstance(value, (int, float))
        else f"'{quote(value).replace('~', '%7E')}"
    )
    return f"{release or 0}~{key}~{position.id}"


def fields_of(accepted: Iterable[str]) -> Any:
    """Return the type of a comma-separated choice of fields."""
    known = list(accepted)

    def check(value: str) -> tuple[str, ...]:
        chosen = tuple(value.split(","))
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise ValueError(f"{unknown[0][:60]!r} is no field; accepted are {', '.join(known)}")
        return chosen

    one = "|".join(known)
    schema = {"type": "string", "pattern": f"^({one})(,({one})){{0,{len(known)}}}$", "examples": [",".join(known[:2])]}
    return Annotated[Any, BeforeValidator(check), WithJsonSchema(schema)]


def sign_both(names: Iterable[str]) -> list[str]:
    """Return sort keys, each also with ``-`` before it."""
    return [sign + name for name in names for sign in ("", "-")]


Deck = one_of(load_decks())
Gpu = one_of(load_gpus())
Status = one_of(STATUSES)
Code = one_of([*RULES, "publication.withdrawn", "waiver.expired"])
CellSort, RunSort = one_of(sign_both(CELL_SORTS)), one_of(sign_both(RUN_SORTS))
Framework = one_of(FRAMEWORKS)
Tier = one_of(MINUTES)
Severity = one_of(["block", "warn", "note"])
Text = Annotated[
    str,
    Field(max_length=200),
    AfterValidator(_check_text),
    WithJsonSchema({"type": "string", "maxLength": 200, "pattern": f"^{_PLAIN}*$"}),
]
FileName = Annotated[
    str,
    Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.-]+\.ya?ml$"),
]
Moment = Annotated[
    datetime.datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}]}),
]
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
Number = whole(1, 2**31 - 1)
Limit = whole(1, MAX_PAGE)
Cursor = Annotated[
    Any,
    BeforeValidator(_cursor),
    WithJsonSchema({"type": "string", "pattern": f"^[0-9]{{1,9}}~[!-}}]*~{_PLAIN}*$", "maxLength": 600}),
]


class Query(Schema):
    """A route's parameters; unknown ones are refused before this is read."""


class Filters(Query):
    """What cells and runs can both be chosen by."""

    deck: Deck | None = Field(None, description="deck id")
    gpu: Gpu | None = Field(None, description="GPU key")
    problem: Text | None = Field(None, description="problem id")
    model: Text | None = Field(None, description="model slug")
    lab: Text | None = Field(None, description="the lab's name as `lab` spells it")
    harness: Text | None = Field(None, description="harness")
    effort: Text | None = Field(None, description="reasoning effort; empty means the default one")
    status: Status | None = Field(None, description="what the board says")
    verdict: Text | None = Field(None, description="the audit's verdict")
    framework: Framework | None = Field(None, description="what the source is written in, alone or beside others")
    verified: Flag | None = Field(None, description="whether our own grade on the same GPU holds for this source")
    reason: Code | None = Field(None, description="a code among the reasons")
    since: Moment | None = Field(None, description="only runs started at this time or later; a date means 00:00 UTC")

    def chosen(self) -> dict[str, Any]:
        """Return the filters that were given."""
        names = Filters.model_fields
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class ReleaseQuery(Query):
    """A pinned release."""

    release: Number | None = Field(None, description="release number; the latest one by default")


class CellFilters(Filters, ReleaseQuery):
    """What an export of cells can be limited to."""


class Paging(Query):
    """Going through a list."""

    cursor: Cursor | None = Field(None, description="`next` of the answer before; it stays with that answer's release")
    limit: Limit = Field(200, description="rows of one answer")
