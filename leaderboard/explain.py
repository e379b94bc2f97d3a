"""One run in full for the command line: how its score follows, what was found, whether it may be published."""

import datetime
from typing import Any

from grading.problem import load_problem
from leaderboard import selection
from leaderboard.boards.cells import current_audits
from leaderboard.models import Run


def explain(run: Run, at: datetime.datetime) -> dict[str, Any]:
    """Return the explanation as plain data, in the shape that design section 6 fixes for ``explain --json``."""
    assessment = run.assessment
    value = None
    if assessment.score is not None:
        value = {"value": assessment.score, "low": assessment.score_low, "high": assessment.score_high}
    audits = run.audits.order_by("ingested_at", "pk")
    return {
        "deck": run.deck_id,
        "gpu": run.gpu_id,
        "run_id": run.run_id,
        "problem": run.problem.slug,
        "metric": _metric(run),
        "reported": run.reported_text,
        "recomputed": value,
        "reason": assessment.reason,
        "agrees": assessment.agrees,
        "shapes": assessment.shapes,
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "message": finding.message,
                "file": finding.file,
                "line": finding.line,
                "data": finding.data,
            }
            for finding in run.findings.all()
        ],
        "eligible": assessment.is_eligible(at),
        "standing": assessment.standing,
        "blockers": assessment.blockers,
        "waived": assessment.waived,
        "state": selection.state_of(run),
        "evidence_digest": assessment.evidence_digest,
        "audits": [
            {"file": row.file, "verdict": row.verdict, "status": row.status, "auditor": row.auditor} for row in audits
        ],
        "current_verdict": _current_verdict(run),
    }


def _current_verdict(run: Run) -> str | None:
    audit = current_audits([run.pk]).get(run.pk)
    return audit.verdict if audit else None


def _metric(run: Run) -> dict[str, Any]:
    metric = load_problem(run.deck_id, run.problem.slug).metric
    return {"kind": metric.kind, "unit": metric.unit, "higher_is_better": metric.higher_is_better}


def render(data: dict[str, Any]) -> str:
    """Return the explanation as text for a terminal."""
    lines = [f"{data['deck']}/{data['gpu']}/{data['run_id']}", f"problem     {data['problem']}"]
    lines.append(f"reported    {data['reported'] or 'nothing'}")
    if data["recomputed"]:
        value = data["recomputed"]
        agrees = {True: "agrees", False: "DISAGREES", None: "nothing to compare"}[data["agrees"]]
        lines.append(f"recomputed  {value['value']:.6g}  [{value['low']:.6g}, {value['high']:.6g}]  {agrees}")
    else:
        lines.append(f"recomputed  not possible: {data['reason']}")
    lines += ["", *_shape_lines(data["shapes"]), "", *_finding_lines(data)]
    lines.append(f"standing    {data['standing']}; blockers: {', '.join(data['blockers']) or 'none'}")
    lines.append(f"waived      {', '.join(data['waived']) or 'nothing'}")
    lines.append(f"audit       {data['current_verdict'] or 'none'}")
    return "\n".join(lines)


def _shape_lines(shapes: list[dict[str, Any]]) -> list[str]:
    rows = [f"{'shape':<6}{'ms':>22}{'value':>24}{'of attainable':>15}  reading"]
    for shape in shapes:
        reading = shape["readings"][0] if shape["readings"] else None
        source = f"{reading['quantity']}={reading['text']} (line {reading['line']})" if reading else "no line"
        share = shape["share_of_attainable"]
        rows.append(
            f"{shape['index']:<6}{_span(shape['ms']):>22}{_span(shape['value']):>24}"
            f"{f'{share[0]:.1%}' if share and share[0] is not None else '-':>15}  {source}"
        )
    return rows


def _span(bounds: list[float | None] | None) -> str:
    if bounds is None:
        return "-"
    low, high = (f"{bound:.5g}" if bound is not None else "open" for bound in bounds[1:])
    return f"{low} .. {high}"


def _finding_lines(data: dict[str, Any]) -> list[str]:
    if not data["findings"]:
        return ["no findings"]
    return [f"[{finding['severity']}] {finding['code']}: {finding['message']}" for finding in data["findings"]]
