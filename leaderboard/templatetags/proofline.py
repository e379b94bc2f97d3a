"""Formatting for every template, in one place: numbers, intervals, states. What is unknown is a dash, never a zero."""

import datetime
import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from grading.hardware import load_gpus
from grading.integrity import RULES
from leaderboard.eligibility import PENDING_CODES
from leaderboard.selection import REJECTED, WITHDRAWN

register = template.Library()
THIN = "\u202f"
_MAX_DECIMALS = 9
_SLACK = 1e-6
_BREAK = SafeString("<wbr>")
_STATES = {
    "published": ("●", "published"),
    "withheld": ("▲", "withheld"),
    "failed": ("✕", "failed"),
    "withdrawn": ("⊘", "withdrawn"),
    "rejected": ("⊘", "rejected"),
    "pending": ("○", "pending"),
}
_DECIDED = {WITHDRAWN: "withdrawn", REJECTED: "rejected"}
_SEVERITIES = {"block": ("■", "blocks"), "warn": ("▲", "warns"), "note": ("·", "note")}
_GRADE_STATES = {
    "verified": "published",
    "verified_note": "published",
    "not_reproduced": "withheld",
    "needs_audit": "withheld",
    "incorrect": "failed",
    "integrity": "failed",
}
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def absent(why: str = "not known") -> SafeString:
    """Return the dash that stands for a missing value, with the reason as its title."""
    return format_html('<span class="absent" title="{}">—</span>', why)


@register.filter
def is_number(value: Any) -> bool:
    """Tell whether a value can be shown as a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@register.filter
def score(value: float | None, decimals: int = 4) -> str:
    """Return a score with its metric's decimals."""
    return f"{value:,.{decimals}f}" if is_number(value) else absent("no score")


@register.filter
def interval(thing: Any, decimals: int = 4) -> str:
    """Return the range of anything with `low` and `high`, or of a (value, low, high) triple."""
    low, high = (thing[1], thing[2]) if isinstance(thing, Sequence) else (thing.low, thing.high)
    return range_text(low, high, decimals) or absent("no interval")


def range_text(low: float | None, high: float | None, decimals: int) -> str:
    """Return ``low – high``, rounded outwards to as many decimals as tell the two apart; empty where one is missing."""
    if low is None or high is None or not (is_number(low) and is_number(high)):
        return ""
    width = high - low
    needed = math.ceil(-math.log10(width)) if width > 0 else decimals
    places = max(0, min(_MAX_DECIMALS, max(decimals, needed)))
    unit = 10.0**-places
    outward = (math.floor(low / unit + _SLACK) * unit, math.ceil(high / unit - _SLACK) * unit)
    return f"{outward[0]:,.{places}f} – {outward[1]:,.{places}f}"


@register.filter
def interval_text(thing: Any, decimals: int = 4) -> str:
    """Return an interval for a title attribute; empty where there is none."""
    return range_text(thing.low, thing.high, decimals)


@register.filter
def significant(value: float | None, digits: int = 4) -> str:
    """Return a number with so many significant digits, never in exponent form."""
    if not is_number(value) or value is None:
        return absent()
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, _MAX_DECIMALS)}f}"


@register.filter
def figure(value: float | str | None) -> str:
    """Return a value of a chart's table: a number with four significant digits, a text as it is."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else significant(value)


@register.filter
def quantity(value: float | None) -> str:
    """Return a catalogue figure as written, with thousands apart."""
    return f"{value:,g}".replace(",", THIN) if is_number(value) else absent("not in the table")


@register.filter
def percent(share: float | None, decimals: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{share * 100:.{decimals}f}{THIN}%" if is_number(share) and share is not None else absent()


@register.filter
def count(value: int | None) -> str:
    """Return a whole number with thousands apart."""
    return f"{value:,}".replace(",", THIN) if is_number(value) else absent()


@register.filter
def money(value: float | None) -> str:
    """Return an amount of money with cents."""
    return f"{value:,.2f}" if is_number(value) else absent("not recorded")


@register.filter
def si(value: float | None) -> str:
    """Return a large quantity with its prefix, for example ``137.4 G``."""
    if not is_number(value) or value is None:
        return absent()
    for factor, prefix in _SI:
        if abs(value) >= factor:
            return f"{value / factor:.4g}{THIN}{prefix}"
    return f"{value:.4g}{THIN}"


@register.filter
def size(value: int | None) -> str:
    """Return a size in bytes, kB or MB."""
    if not is_number(value) or value is None:
        return absent()
    for factor, unit in ((1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.1f}{THIN}{unit}"
    return f"{value}{THIN}bytes"


@register.filter
def duration(seconds: int | None) -> str:
    """Return a duration in hours, minutes and seconds."""
    if not is_number(seconds) or seconds is None:
        return absent("not recorded")
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest if not hours else 0, "s"))
    return " ".join(f"{number}{THIN}{unit}" for number, unit in parts if number) or f"0{THIN}s"


@register.filter
def day(moment: datetime.datetime | datetime.date | None) -> str:
    """Return a date as a ``time`` element."""
    if moment is None:
        return absent("date not recorded")
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), moment.strftime("%Y-%m-%d"))


@register.filter
def moment(value: datetime.datetime | None, precision: str = "minutes") -> str:
    """Return a date and time in UTC as a ``time`` element, to the minute or, with ``seconds``, to the second."""
    if value is None:
        return absent("time not recorded")
    utc = value.astimezone(datetime.UTC)
    form = "%Y-%m-%d %H:%M:%S" if precision == "seconds" else "%Y-%m-%d %H:%M"
    return format_html('<time datetime="{}">{} UTC</time>', utc.isoformat(), utc.strftime(form))


@register.filter
def moment_text(value: datetime.datetime) -> str:
    """Return a date and time in UTC as plain text, for a title."""
    return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


@register.filter
def since(start: datetime.datetime, at: datetime.datetime) -> str:
    """Return for how long something lasts."""
    return duration(int((at - start).total_seconds()))


@register.filter
def words(text: str | None) -> str:
    """Return a verdict's word as it is read, ``not_reproduced`` as ``not reproduced``; a dash for none."""
    if text == "verified_note":
        return "verified, with a note"
    return text.replace("_", " ") if text else absent("none yet")


@register.filter
def grade_state(word: str) -> str:
    """Return whose colour and sign a word of our own grade has: amber where a person has something to look at."""
    return _GRADE_STATES.get(word, "pending")


@register.filter
def rank(places: tuple[int, int] | None) -> str:
    """Return a rank range, with what a range means as its title."""
    if places is None:
        return absent("no rank")
    low, high = places
    if low == high:
        return str(low)
    return format_html('<span title="not separable: any place from {} to {}">{}–{}</span>', low, high, low, high)


@register.filter
def state(thing: Any) -> str:
    """Return the word for what a cell or run is: its status, or withdrawn or rejected where that is the reason."""
    codes = {reason.code for reason in thing.reasons}
    return next((word for code, word in _DECIDED.items() if code in codes), str(thing.status))


@register.filter
def weightiest(reasons: Iterable[Any]) -> list[Any]:
    """Return reasons with what merely waits for a person last, whatever order an old release holds."""
    return sorted(reasons, key=lambda reason: reason.code in PENDING_CODES)


@register.filter
def breakable(text: str) -> str:
    """Return a code or name that may break after its dots and underscores."""
    return format_html_join(_BREAK, "{}", ((part,) for part in re.split(r"(?<=[._/])", str(text))))


@register.filter
def gpu_name(key: str) -> str:
    """Return a GPU's full name, or its key where the catalogue has no such."""
    gpus = load_gpus()
    return gpus[key].name if key in gpus else key


@register.filter
def run_day(run: Any) -> str:
    """Return the date of a run: when it started, or else the stamp in its id, which says so."""
    if run.started_at is not None:
        return day(run.started_at)
    text = f"{run.run_id[:4]}-{run.run_id[4:6]}-{run.run_id[6:8]}"
    return format_html('<time datetime="{}" title="from the run id">{}</time>', text, text)


@register.filter
def glyph(word: str) -> str:
    """Return the sign of a state or a severity."""
    return (_STATES | _SEVERITIES).get(word, ("?", word))[0]


@register.filter
def rule_title(code: str) -> str:
    """Return a finding's title, or its code where the rule no longer exists."""
    return RULES[code].title if code in RULES else code


@register.filter
def is_rule(code: str) -> bool:
    """Tell whether a code is a rule, which then has its place on the method page."""
    return code in RULES


@register.filter
def severity_word(severity: str) -> str:
    """Return what a finding of a severity does."""
    return _SEVERITIES.get(severity, ("?", severity))[1]


@register.filter
def arrow(metric: Any) -> str:
    """Return which direction is better, as an arrow that also reads aloud."""
    sign, words = ("↑", "higher is better") if metric.higher_is_better else ("↓", "lower is better")
    return format_html('<abbr class="arrow" title="{}" aria-label="{}">{}</abbr>', words, words, sign)


@register.filter
def width(share: float | None, full: float = 100) -> str:
    """Return a share of 1 as a length for an SVG attribute, held between nothing and full."""
    bounded = min(max(share, 0.0), 1.0) if is_number(share) and share is not None else 0.0
    return f"{bounded * full:.2f}"


@register.filter
def quoted(text: str) -> str:
    """Return a text as one word of a shell's command line."""
    return shlex.quote(text)


@register.filter
def ld(data: dict[str, Any]) -> SafeString:
    """Return data as JSON that no text in it can break out of, for a script element that holds data."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return SafeString(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@register.filter
def before(text: str, ending: str) -> str:
    """Return an address without its ending."""
    return text.removesuffix(ending)


@register.filter
def lookup(mapping: Any, key: Any) -> Any:
    """Return a mapping's value for a key, or None."""
    return mapping.get(key)


@register.filter
def plural(number: int, words: str) -> str:
    """Return a number with its noun: ``{{ 2|plural:"cell,cells" }}`` gives ``2 cells``."""
    one, many = words.split(",")
    return f"{count(number)} {one if number == 1 else many}"


@register.filter
def listed(values: Iterable[float], decimals: int = 4) -> str:
    """Return factors of a product, for the score's formula."""
    return " × ".join(f"{value:.{decimals}f}" for value in values)
