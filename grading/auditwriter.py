"""Audits in our own form: written as YAML that `auditfile` reads back to the same words.

Source: docs/audits.md; grading/schemas/audit.schema.json is the same as a JSON Schema.
"""

import re
from typing import Any, get_args

import msgspec
import yaml

from grading.auditfile import Audit, AuditError, Publishable, Quote, Verdict, publishable_of, read_audit
from grading.hardware import identify, load_gpus

VERDICTS: tuple[Verdict, ...] = tuple(word for word in get_args(Verdict) if word not in ("unknown", "unreadable"))
CHECKED = ("source", "check_log", "benchmark_log", "transcript", "recomputed_score", "reran_solution")
WIDTH = 110
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What an auditor says about one run.

    gpu          the board's GPU key
    acknowledge  what an approver must have understood; needed with the verdict ``interesting``
    checked      what was looked at, words of `CHECKED`
    supersedes   digests of the earlier audits of this run that this one settles
    """

    run_id: str
    problem: str
    gpu: str
    verdict: Verdict
    auditor: str
    summary: str
    acknowledge: str | None = None
    checked: tuple[str, ...] = ()
    evidence: str | None = None
    quotes: tuple[Quote, ...] = ()
    supersedes: tuple[str, ...] = ()

    @property
    def publishable(self) -> Publishable:
        """What the verdict allows."""
        return publishable_of(self.verdict)


def write_audit(draft: Draft) -> str:
    """Return a draft as the text of an audit file.

    Raises AuditError for a text that would not be read back as it is, such as one with control characters.
    """
    table = {name: value for name, value in _table(draft).items() if value not in (None, "", [])}
    text: str = yaml.safe_dump(table, sort_keys=False, allow_unicode=True, width=WIDTH)
    audit = read_audit(text.encode(), f"{draft.run_id}.yaml", None)
    if not _is_same(audit, draft):
        raise AuditError("a field holds characters or words that an audit file cannot carry; use plain text")
    return text


def clean_text(text: str) -> str:
    """Return a text with Unix line ends, without characters that YAML would change and spaces around it."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _table(draft: Draft) -> dict[str, Any]:
    return {
        "run_id": draft.run_id,
        "verdict": draft.verdict,
        "problem": draft.problem,
        "gpu": gpu_text(draft.gpu),
        "auditor": draft.auditor,
        "summary": draft.summary,
        "acknowledge": draft.acknowledge,
        "checked": list(draft.checked),
        "evidence": draft.evidence,
        "quotes": [_quote(quote) for quote in draft.quotes],
        "supersedes": list(draft.supersedes),
    }


def gpu_text(key: str) -> str:
    """Return the words that name a GPU beyond doubt: its full name where that proves it, else its key."""
    gpu = load_gpus().get(key)
    return gpu.name if gpu is not None and identify(gpu.name) == (key,) else key


def _quote(quote: Quote) -> dict[str, Any]:
    fields = {"file": quote.file, "lines": list(quote.lines), "label": quote.label, "text": quote.text}
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _is_same(audit: Audit, draft: Draft) -> bool:
    same = ("run_id", "verdict", "auditor", "summary", "quotes", "supersedes", "publishable")
    is_read = audit.status == "read" and not audit.blockers
    return is_read and all(getattr(audit, name) == getattr(draft, name) for name in same)
