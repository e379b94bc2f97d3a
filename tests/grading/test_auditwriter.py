"""Audits in our own form: what is written is what is read, and what the schema allows."""

import json
import string
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from grading import publishability
from grading.auditfile import AuditError, Quote, read_audit
from grading.auditwriter import CHECKED, VERDICTS, Draft, clean_text, gpu_text, write_audit
from grading.hardware import load_gpus
from tests.factories import RUN_ID, make_audit_text

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "grading" / "schemas" / "audit.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
DIGEST = "0123456789abcdef" * 4


def make_draft(**overrides: Any) -> Draft:
    fields: dict[str, Any] = {
        "run_id": RUN_ID, "problem": "07_w4a16_gemm", "gpu": "H200", "verdict": "clean", "auditor": "A. Auditor",
        "summary": "Read the kernel.",
    }  # fmt: skip
    return Draft(**{**fields, **overrides})


def read_back(draft: Draft) -> Any:
    return read_audit(write_audit(draft).encode(), f"{draft.run_id}.yaml", "hard")


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_read_as_it_was_written_and_allowed_by_the_schema(verdict: Any) -> None:
    draft = make_draft(verdict=verdict, acknowledge="Only for these shapes.", checked=CHECKED, supersedes=(DIGEST,))
    audit = read_back(draft)
    assert (audit.verdict, audit.publishable, audit.supersedes) == (verdict, draft.publishable, (DIGEST,))
    VALIDATOR.validate(yaml.safe_load(write_audit(draft)))


def test_quotes_keep_file_lines_label_and_text() -> None:
    quotes = (Quote(file="solution.py", lines=(3, 9), label="loop", text="for i in x:\n    y"), Quote(text="alone"))
    draft = make_draft(quotes=quotes)
    assert read_back(draft).quotes == quotes
    VALIDATOR.validate(yaml.safe_load(write_audit(draft)))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_any_cleaned_text_comes_back(text: str) -> None:
    words = clean_text(text)
    if words:
        audit = read_back(make_draft(summary=words, quotes=(Quote(text=words),)))
        assert (audit.summary, audit.quotes[0].text) == (words, words)


@given(st.text(alphabet=string.printable + "é—𝛑", max_size=80))
def test_a_text_that_would_change_is_refused_not_changed(text: str) -> None:
    try:
        written = write_audit(make_draft(summary=text or "x"))
    except AuditError:
        return
    assert read_audit(written.encode(), f"{RUN_ID}.yaml", "hard").summary == (text or "x")


@pytest.mark.parametrize("key", [key for key in load_gpus() if key not in ("H100x4", "CPU")])
def test_the_gpu_is_written_so_that_it_proves_one_part(key: str) -> None:
    audit = read_back(make_draft(gpu=key))
    assert audit.gpu == key
    assert gpu_text(key) == audit.gpu_text


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "perfect"},
        {"verdict": "interesting"},
        {"run_id": "x"},
        {"auditor": ""},
        {"supersedes": ["abc"]},
        {"quotes": [{"file": "a.py"}]},
        {"quotes": [{"lines": [0], "file": "a.py"}]},
        {"quotes": [{"lines": [1]}]},
        {"checked": ["everything"]},
        {"sumary": "misspelt"},
    ],
)
def test_the_schema_refuses_what_we_do_not_mean(fields: dict[str, Any]) -> None:
    good = yaml.safe_load(write_audit(make_draft()))
    VALIDATOR.validate(good)
    assert not VALIDATOR.is_valid({**good, **fields})


def test_schema_and_document_name_every_field_that_can_say_no_and_every_word() -> None:
    properties = SCHEMA["properties"]
    assert [name for name in publishability._CHECKS if name not in properties] == []
    assert properties["verdict"]["enum"] == list(VERDICTS)
    document = (ROOT / "docs" / "audits.md").read_text()
    keys = [name for name in properties if name not in publishability._CHECKS]
    assert [name for name in (*keys, *VERDICTS, *CHECKED) if f"`{name}`" not in document] == []


def test_the_documents_example_is_one_of_ours() -> None:
    document = (ROOT / "docs" / "audits.md").read_text()
    example = document.split("```yaml\n")[1].split("```")[0]
    VALIDATOR.validate(yaml.safe_load(example))
    assert read_audit(example.encode(), "a.yaml", "hard").publishable == "with_acknowledgement"


def test_what_supersedes_is_a_list_of_digests_and_nothing_else() -> None:
    text = make_audit_text(supersedes=[DIGEST, "short", DIGEST.upper(), 7])
    assert read_audit(text.encode(), "a.yaml", "hard").supersedes == (DIGEST,)
    assert read_audit(make_audit_text(supersedes=DIGEST).encode(), "a.yaml", "hard").supersedes == (DIGEST,)
