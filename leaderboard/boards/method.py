"""The method as readers see it: the rules of the registry, and docs/method.md as blocks of text."""

import inspect
from dataclasses import dataclass
from functools import cache

from django.conf import settings

from grading.integrity import RULES
from grading.problem import load_decks
from leaderboard.prose import Block, parse

_WHOM = {"block": "Withholds the score", "warn": "Published with a warning", "note": "Published with a note"}


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule, and the decks that give it another severity."""

    code: str
    title: str
    severity: str
    effect: str
    is_waivable: bool
    is_lead: bool
    text: str
    overrides: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """The rules that share the first word of their code."""

    name: str
    rules: tuple[RuleView, ...]


@cache
def list_rules() -> tuple[RuleGroup, ...]:
    """Return the registry's rules by group, in order of the registry."""
    groups: dict[str, list[RuleView]] = {}
    for rule in RULES.values():
        overrides = tuple(
            (deck.title, deck.severity[rule.code].severity, deck.severity[rule.code].reason)
            for deck in load_decks().values()
            if rule.code in deck.severity
        )
        view = RuleView(
            rule.code,
            rule.title,
            rule.severity,
            _WHOM[rule.severity],
            rule.is_waivable,
            rule.is_lead,
            inspect.getdoc(rule.check) or "",
            overrides,
        )
        groups.setdefault(rule.code.partition(".")[0], []).append(view)
    return tuple(RuleGroup(name, tuple(rules)) for name, rules in groups.items())


@cache
def read_method() -> tuple[Block, ...]:
    """Return docs/method.md as blocks, empty where the file does not exist."""
    path = settings.BASE_DIR / "docs" / "method.md"
    return parse(path.read_text(encoding="utf-8")) if path.is_file() else ()
