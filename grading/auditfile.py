"""Audits as people wrote them: read, repaired where that is safe, or kept as unreadable with the place.

An audit never becomes cleaner by being read: an unknown verdict word, a field that says no, or a value that is not
understood in a field that decides, keeps it from publishing.

Source: docs/method.md "Audits".
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from grading.audityaml import Value, YamlFault, read_or_repair
from grading.hardware import identify
from grading.publishability import blockers_in, is_true
from grading.runid import is_run_id

MAX_AUDIT_BYTES = 256 * 1024

Verdict = Literal[
    "clean",
    "interesting",
    "rubric_leak",
    "suspect",
    "reward_hack",
    "contaminated",
    "wrong",
    "forbidden_op",
    "not_judged",
    "unknown",
    "unreadable",
]
Publishable = Literal["yes", "with_acknowledgement", "no"]

_VERDICTS: dict[str, Verdict] = {
    "clean": "clean",
    "interesting": "interesting",
    "rubric_leak": "rubric_leak",
    "suspect": "suspect",
    "reward_hack": "reward_hack",
    "contaminated": "contaminated",
    "wrong": "wrong",
    "forbidden_op": "forbidden_op",
    "not_judged": "not_judged",
    "contamination": "contaminated",
    "contaminated_cross_run": "contaminated",
    "bug": "wrong",
    "fail": "wrong",
    "fail_honest": "wrong",
    "fail_forbidden_op_tripwire": "forbidden_op",
    "harness_limited": "not_judged",
    "retryable_infra_failure": "not_judged",
    "timeout_unverified": "not_judged",
}
_PUBLISHABLE: dict[Verdict, Publishable] = {"clean": "yes", "interesting": "with_acknowledgement"}
_AUDITORS = ("auditor", "audited_by", "finalizer", "regraded_by")
_SCORES = ("peak_fraction", "peak_fraction_clean", "speedup_clean", "speedup_geomean", "archived_peak_fraction")
_GPU_FIELDS = ("gpu_name", "gpu", "regrade_device")
_TYPED = frozenset({"run_id", "verdict", "summary", "quotes", "evidence"})
_VERDICT_LINE = re.compile(r"^verdict:[ \t]*([^\s#]+)([^\n]*)", re.MULTILINE)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_STAMP = re.compile(r"\d{8}_", re.ASCII)
_B200_SUFFIX = "_b200"


class AuditError(ValueError):
    """A file that is no audit; the message is safe to show to users."""


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that an auditor quotes: the file, its lines ``(first, last)`` or ``(only,)``, a label, the text."""

    file: str | None = None
    lines: tuple[int, ...] = ()
    label: str | None = None
    text: str | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """One audit file. What it does not say is None; ``raw`` keeps every other key as text.

    run_id        the run it judges: the file's name where that is a run id, else the id inside
    gpu           a GPU key, where the file proves exactly one; ``gpu_text`` is what it says
    verdict_text  the word as written; ``verdict`` is its normalised meaning
    blockers      each field that says no, with its value; any of them makes ``publishable`` no
    supersedes    digests of earlier audits of the run that this one settles; see `integrity.audits.standing`
    error_line    line and column (from 1) of what does not read, also when it was repaired
    """

    deck: str | None
    file: str
    digest: str
    status: Literal["read", "repaired", "unreadable"]
    run_id: str | None
    run_id_source: Literal["file", "name"] | None
    inner_run_id: str | None = None
    gpu: str | None = None
    gpu_text: str | None = None
    gpu_name: str | None = None
    verdict_text: str | None = None
    verdict: Verdict
    verdict_comment: str | None = None
    publishable: Publishable
    blockers: tuple[str, ...] = ()
    summary: str | None = None
    auditor: str | None = None
    quotes: tuple[Quote, ...] = ()
    evidence: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    correct: bool | None = None
    score_text: str | None = None
    raw: dict[str, str] = {}
    error: str | None = None
    error_line: int | None = None
    error_column: int | None = None
    repairs: tuple[str, ...] = ()


def read_audit(data: bytes, name: str, deck: str | None) -> Audit:
    """Return what an audit file says.

    data  the file's bytes
    name  the file's name; it tells the run where it is a run id (a ``_b200`` at its end is no part of one)
    deck  the deck it belongs to, where known
    Raises AuditError for a file that is no audit: too long, or naming neither a run nor a verdict.
    """
    if len(data) > MAX_AUDIT_BYTES:
        raise AuditError(f"{name} is {len(data)} bytes long; at most {MAX_AUDIT_BYTES} are accepted")
    stem = name.rpartition("/")[2]
    stem = stem.removesuffix(".yaml").removesuffix(".yml")
    fields: dict[str, Any] = {"deck": deck, "file": name, "digest": hashlib.sha256(data).hexdigest()}
    try:
        text = data.decode("utf-8-sig")
        found = read_or_repair(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        return _unreadable(fields, stem, data.decode("utf-8", "replace"), YamlFault("not UTF-8", line, column))
    except YamlFault as fault:
        return _unreadable(fields, stem, text, fault)
    if not _STAMP.match(stem) and "verdict" not in found.table and "run_id" not in found.table:
        raise AuditError(f"{name} is no audit; need the keys run_id and verdict")
    fields |= {"status": "repaired" if found.repairs else "read", "repairs": found.repairs}
    fields |= {"error": found.reason, "error_line": found.line, "error_column": found.column}
    return _build(fields | _identity(stem, found.table), text, found.table)


def publishable_of(verdict: Verdict) -> Publishable:
    """Return what a verdict allows where no field says no."""
    return _PUBLISHABLE.get(verdict, "no")


def _unreadable(fields: dict[str, Any], stem: str, text: str, fault: YamlFault) -> Audit:
    line = _VERDICT_LINE.search(text)
    if not _STAMP.match(stem) and line is None:
        raise AuditError(f"{fields['file']} is no audit: {fault.reason} at line {fault.line}")
    return Audit(
        **fields,
        **_identity(stem, {}),
        status="unreadable",
        verdict_text=_clean_text(line[1]) if line else None,
        verdict="unreadable",
        publishable="no",
        blockers=(f"file is not readable: {fault.reason} at line {fault.line}",),
        error=fault.reason,
        error_line=fault.line,
        error_column=fault.column,
    )


def _identity(stem: str, table: Mapping[str, Value]) -> dict[str, Any]:
    """Return the run that an audit judges: the name wins over the id inside, and both are kept."""
    inner = _text(table.get("run_id"))
    named = stem.removesuffix(_B200_SUFFIX)
    if is_run_id(named):
        source = "file" if inner == named else "name"
        return {"run_id": named, "run_id_source": source, "inner_run_id": None if inner == named else inner}
    if inner is not None and is_run_id(inner):
        return {"run_id": inner, "run_id_source": "file"}
    return {"run_id": None, "run_id_source": None, "inner_run_id": inner}


def _build(fields: dict[str, Any], text: str, table: dict[str, Value]) -> Audit:
    word = _text(table.get("verdict"))
    verdict = _VERDICTS.get(word.strip().lower(), "unknown") if word else "unknown"
    blockers = blockers_in(table)
    line = _VERDICT_LINE.search(text)
    auditor = next((said for name in _AUDITORS if (said := _text(table.get(name)))), None)
    return Audit(
        **(fields | _gpu(fields["file"], table)),
        verdict_text=word,
        verdict=verdict,
        verdict_comment=(line[2].partition(" #")[2].strip() or None) if line else None,
        publishable="no" if blockers else publishable_of(verdict),
        blockers=blockers,
        summary=_text(table.get("summary")),
        auditor=auditor,
        quotes=_quotes(table.get("quotes")),
        evidence=_evidence(table),
        supersedes=_digests(table.get("supersedes")),
        correct=is_true(table.get("correct")),
        score_text=_score(table),
        raw={name: _as_text(value) for name, value in table.items() if name not in _TYPED},
    )


def _gpu(file: str, table: Mapping[str, Value]) -> dict[str, Any]:
    """Return the one GPU that all of the file's fields prove, and what they say."""
    said = [text for name in _GPU_FIELDS if (text := _text(table.get(name)))]
    proven = {keys[0] for keys in map(identify, said) if len(keys) == 1}
    if not said and re.search(rf"{_B200_SUFFIX}\.ya?ml$", file):
        proven = {"B200"}
    return {
        "gpu": proven.pop() if len(proven) == 1 else None,
        "gpu_text": _text(table.get("gpu")) or (said[0] if said else None),
        "gpu_name": _text(table.get("gpu_name")),
    }


def _score(table: Mapping[str, Value]) -> str | None:
    said = (_text(table.get(name)) for name in _SCORES)
    return next((text for text in said if text is not None and _NUMBER.fullmatch(text)), None)


def _quotes(value: Value) -> tuple[Quote, ...]:
    items = value if isinstance(value, list) else [value] if value is not None else []
    return tuple(_quote(item) for item in items)


def _quote(item: Value) -> Quote:
    if not isinstance(item, dict):
        return Quote(text=_as_text(item))
    numbers = item.get("lines")
    found = [text for text in (numbers if isinstance(numbers, list) else [numbers]) if isinstance(text, str)]
    lines = tuple(int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 10)
    return Quote(
        file=_text(item.get("file")), lines=lines, label=_text(item.get("label")), text=_text(item.get("text"))
    )


def _digests(value: Value) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(text for text in items if isinstance(text, str) and _DIGEST.fullmatch(text))


def _evidence(table: Mapping[str, Value]) -> tuple[str, ...]:
    texts: list[str] = []
    for name, value in table.items():
        if name != "evidence" and not (name.endswith("_evidence") and isinstance(value, str | list)):
            continue
        texts.extend(_as_text(item) for item in (value if isinstance(value, list) else [value]) if item is not None)
    return tuple(texts)


def _text(value: Value) -> str | None:
    """Return a text without the line end that a block text carries, or None where there is none."""
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    return _as_text(value)


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clean_text(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]
