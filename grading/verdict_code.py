"""Rules on the code that was mapped in the worker (P12), as pure functions on recorded looks.

Text of a library never changes by itself, so altered text accuses; what just-in-time compilers and closures make is
kept as notes of the evidence and accuses nobody.

Source: docs/grader.md "Mapped code".
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from grading.evidence import CodeLook

CodeWord = Literal["integrity", "needs_audit", "verified_note"]


class CodeRule(msgspec.Struct, frozen=True):
    """A rule on mapped code that fired."""

    rule: str
    word: CodeWord
    message: str


def judge_code(looks: Sequence[CodeLook]) -> Iterator[CodeRule]:
    """Yield the rules that fire on the looks of one pass, each once, with the first look that shows it."""
    found: dict[str, CodeRule] = {}
    for look in looks:
        for item in (*_judge_look(look), *_judge_unread(looks[0], look)):
            found.setdefault(item.rule, item)
    yield from found.values()


def _judge_look(look: CodeLook) -> Iterator[CodeRule]:
    if changed := [*look.altered, *look.replaced]:
        yield CodeRule("P12.mapped_code", "integrity", _say("library code differs from its file", changed, look))
    if look.restored:
        message = _say("library code was written to and put back", look.restored, look)
        yield CodeRule("P12.restored_code", "needs_audit", message)
    if look.slots:
        message = _say("a clock or CUDA call leads out of every library", look.slots, look)
        yield CodeRule("P12.patched_slot", "needs_audit", message)
    if look.relro:
        message = _say("the loader's sealed tables were opened for writing", look.relro, look)
        yield CodeRule("P12.opened_tables", "verified_note", message)


def _judge_unread(first: CodeLook, look: CodeLook) -> Iterator[CodeRule]:
    if first.unread is None and look.unread is not None:
        message = f"the process could be looked at before the import, and not after {look.at!r}: {look.unread}"
        yield CodeRule("P12.hidden_code", "needs_audit", message)


def _say(what: str, where: Sequence[str], look: CodeLook) -> str:
    more = f" and {len(where) - 3} more" if len(where) > 3 else ""
    return f"{what} after {look.at!r}: {', '.join(where[:3])}{more}"
