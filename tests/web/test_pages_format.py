"""How numbers, intervals and prose are written on pages, and the templates' own rules."""

import re
from pathlib import Path

import pytest
from django.conf import settings

from leaderboard import prose
from leaderboard.boards import Reason
from leaderboard.templatetags import proofline

TEMPLATES = sorted((settings.BASE_DIR / "templates").glob("*.html"))


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), True, "x"])
def test_what_is_no_number_is_a_dash_and_never_zero(bad: object) -> None:
    for write in (proofline.score, proofline.percent, proofline.significant, proofline.count, proofline.si):
        assert "—" in write(bad), write  # type: ignore[operator]


def test_zero_is_a_value() -> None:
    assert proofline.score(0.0, 4) == "0.0000"
    assert proofline.percent(0.0).startswith("0.0")
    assert proofline.significant(0.0) == "0"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.30332594, 0.30332628, "0.3033259 – 0.3033263"),
        (0.02585, 0.02595, "0.02585 – 0.02595"),
        (0.25, 0.25, "0.2500 – 0.2500"),
        (0.0, 0.00005, "0.00000 – 0.00005"),
    ],
)
def test_an_interval_is_rounded_outwards_to_digits_that_tell_its_ends_apart(low: float, high: float, text: str) -> None:
    assert proofline.range_text(low, high, 4) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.15049, "0.1505"), (12345.6, "12,346"), (6.0e-5, "0.00006000"), (66.56, "66.56")]
)
def test_significant_digits_never_use_an_exponent(value: float, text: str) -> None:
    assert proofline.significant(value, 4) == text


def test_a_rank_range_says_that_places_are_not_separable() -> None:
    assert proofline.rank((2, 2)) == "2"
    assert "2–4" in proofline.rank((2, 4)) and "not separable" in proofline.rank((2, 4))


def test_a_bar_never_leaves_its_track() -> None:
    assert [proofline.width(share) for share in (None, -1.0, 0.5, 7.0)] == ["0.00", "0.00", "50.00", "100.00"]


def test_what_waits_for_a_person_is_the_last_reason() -> None:
    reasons = [Reason("audit.missing", ""), Reason("check.failed", "")]
    assert [reason.code for reason in proofline.weightiest(reasons)] == ["check.failed", "audit.missing"]


def test_breakable_text_stays_escaped() -> None:
    assert proofline.breakable("a_<b>") == "a_<wbr>&lt;b&gt;"


def test_prose_reads_headings_lists_code_and_tables() -> None:
    text = "# Title\n\nA `code` and **bold** [link](/x).\n\n- one\n  more\n- two\n\n"
    text += "```\nx < y\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    blocks = prose.parse(text)
    assert [block.kind for block in blocks] == ["heading", "paragraph", "list", "code", "table"]
    assert [span.kind for span in blocks[1].spans] == ["text", "code", "text", "strong", "text", "link", "text"]
    assert [len(block) for block in (blocks[2].items, blocks[4].rows)] == [2, 2]
    assert blocks[3].text == "x < y"


def test_prose_does_not_link_to_a_script() -> None:
    assert [span.kind for span in prose.spans("[x](javascript:alert(1))")] == ["text"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_short_has_no_inline_style_and_includes_only_what_it_names(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 150
    assert "style=" not in text and "|safe" not in text and "autoescape off" not in text
    assert not [tag for tag in re.findall(r"{% include [^%]*%}", text) if " only %}" not in tag]


def test_colours_stand_in_the_tokens_only() -> None:
    for path in (settings.BASE_DIR / "static" / "css").glob("*.css"):
        text = path.read_text()
        if path.stem != "tokens":
            assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgb\(|!important", text), path.name
        assert len(text.splitlines()) <= 250, path.name


def test_every_table_of_a_document_has_a_name_of_its_own() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    blocks = prose.parse(f"# One\n\n{table}\n\nbetween\n\n{table}\n\n## `Two` of it\n\n{table}")
    assert [block.text for block in blocks if block.kind == "table"] == ["One", "One, 2", "Two of it"]
