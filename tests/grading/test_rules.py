"""Every integrity rule: it speaks where it must, stays silent where it must, and is noticed when it is gone."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from grading.integrity import RULES, Context, judge, may_publish_transcript, severity_of
from grading.integrity.transcripts import BLOCKS_TRANSCRIPT
from grading.score import METHOD_VERSION
from tests.factories import make_context
from tests.rulebook import all_cases, method

SPEAKS, SILENT = all_cases()


def ids(cases: list[tuple[str, str, Callable[[], Context]]]) -> list[str]:
    return [f"{code}: {label}" for code, label, _ in cases]


def unnoticed(code: str) -> bool:
    """Tell whether none of a rule's speaking cases fails with the rule as it stands in the registry."""
    return all(list(RULES[code].check(make())) for name, _, make in SPEAKS if name == code)


@pytest.mark.parametrize(("code", "label", "make"), SPEAKS, ids=ids(SPEAKS))
def test_a_rule_speaks(code: str, label: str, make: Callable[[], Context]) -> None:
    statements = list(RULES[code].check(make()))
    assert statements, label
    for statement in statements:
        assert statement.message[-1] in ".!?"
        assert "\n" not in statement.message
        assert statement.line is None or statement.line >= 0


@pytest.mark.parametrize(("code", "label", "make"), SILENT, ids=ids(SILENT))
def test_a_rule_stays_silent(code: str, label: str, make: Callable[[], Context]) -> None:
    assert not [statement.message for statement in RULES[code].check(make())], label


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_a_positive_and_a_negative_case(code: str) -> None:
    assert [label for name, label, _ in SPEAKS if name == code]
    assert [label for name, label, _ in SILENT if name == code]


@pytest.mark.parametrize("code", RULES)
def test_a_rule_that_never_speaks_is_noticed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unnoticed(code)
    monkeypatch.setitem(RULES, code, replace(RULES[code], check=lambda context: ()))
    assert not unnoticed(code)


@pytest.mark.parametrize("code", RULES)
def test_a_rule_that_always_speaks_is_noticed(code: str) -> None:
    assert any(not list(RULES[code].check(make())) for name, _, make in SILENT if name == code)


def test_an_honest_run_has_no_finding() -> None:
    assert [finding.code for finding in judge(make_context())] == []


@pytest.mark.parametrize("code", RULES)
def test_public_sentences_hold_no_numbers_and_every_rule_explains_itself(code: str) -> None:
    rule = RULES[code]
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", code)
    assert not re.search(r"\d\.\d|\d{3,}", rule.title)
    assert rule.title[0].isupper()
    assert not rule.title.endswith(".")
    text = rule.check.__doc__ or ""
    assert "Example:" in text
    assert len(text.split()) >= 20


def test_leads_are_notes_and_only_leads_are_named_so() -> None:
    for code, rule in RULES.items():
        assert rule.is_lead == code.startswith("lead.")
        assert not rule.is_lead or severity_of(rule, make_context()) == "note"


def test_a_secret_keeps_the_transcript_back_and_not_the_run() -> None:
    assert set(RULES) >= BLOCKS_TRANSCRIPT
    assert all(RULES[code].severity != "block" for code in BLOCKS_TRANSCRIPT)
    assert not may_publish_transcript(["audit.missing", "transcript.secret"])
    assert may_publish_transcript(["audit.missing"])


def test_the_method_explains_every_rule_and_has_the_method_s_version() -> None:
    assert method.PATH.read_text().startswith(f"# Method (version {METHOD_VERSION})\n")
    assert method.current() == method.paragraphs()


def test_the_catalogue_table_names_every_entry_once_and_only_known_codes() -> None:
    rows = [row.split("|") for row in method.PATH.read_text().splitlines() if re.match(r"\| [ASHV]\d", row)]
    wanted = [
        f"{group}{number}"
        for group, last in (("A", 12), ("S", 11), ("H", 7), ("V", 18))
        for number in range(1, last + 1)
    ]
    assert [row[1].strip() for row in rows] == wanted
    codes = {code for row in rows for code in re.findall(r"`([a-z_.]+)`", row[3])}
    assert codes <= set(RULES)
    rest = set(RULES) - codes
    assert all(code.startswith(("lead.", "verification.", "transcript.")) or code in {"gpu.ambiguous"} for code in rest)
