"""What the worker says, cut to bounds: it is a claim, and may be of any type, size and sign."""

from typing import Any

from grading.evidence import Call
from grading.warden.plan import Step
from grading.warden.talk import Rung

_LARGEST_CLAIM_NS = 1 << 62
_MOST_LINES, _MOST_ROWS = 40, 60


def record_call(number: int, step: Step, rung: Rung, moved: float | None) -> Call:
    """Return the record of a call: the oracle's findings as they are, the worker's claims only within bounds."""
    judged, fault, claim = rung.judged, rung.called.get("fault"), rung.called.get("claim_ns")
    fault = fault if isinstance(fault, dict) else None
    return Call(
        number=number,
        group=step.group,
        kind=step.kind,
        name=step.name,
        slot=step.slot,
        done_ns=rung.done_ns,
        snap_ns=rung.snap_ns,
        held_ns=rung.held_ns,
        claim_ns=claim if isinstance(claim, int) and 0 <= claim < _LARGEST_CLAIM_NS else 0,
        ratio=judged["ratio"],
        bad=judged["bad"],
        form=judged["form"],
        hash=judged["hash"],
        inputs_intact=judged["inputs_intact"],
        poison_left=judged["poison_left"],
        is_within_deck=judged["is_within_deck"],
        class_ratio=judged["class_ratio"],
        moved=moved,
        fault=str(fault.get("kind"))[:20] if fault else None,
        fault_text=str(fault.get("text"))[:500] if fault else None,
    )


def as_lines(value: Any) -> list[str]:
    """Return a claimed list as short lines; empty for anything else."""
    return [str(line)[:200] for line in value][:_MOST_LINES] if isinstance(value, list) else []


def census_rows(rows: Any) -> list[dict[str, Any]]:
    """Return a claimed census as rows with name, kind and share; rows of another form are left out."""
    return [row for row in map(_census_row, rows if isinstance(rows, list) else []) if row][:_MOST_ROWS]


def _census_row(row: Any) -> dict[str, Any] | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    share = row.get("share")
    kind = "kernel" if row.get("kind") == "kernel" else "op"
    return {"name": row["name"][:120], "kind": kind, "share": float(share) if isinstance(share, float | int) else 0.0}
