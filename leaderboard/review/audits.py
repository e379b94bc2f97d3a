"""Audits made at the desk: a form or a file becomes an audit file, and takes the way of every other audit."""

import datetime
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from grading.archive import AuditItem
from grading.auditfile import Audit as AuditRecord
from grading.auditfile import AuditError, Quote, read_audit
from grading.auditwriter import Draft, write_audit
from leaderboard.ingest import Source, ingest_items
from leaderboard.models import Audit, Run
from leaderboard.recompute import recompute_all
from leaderboard.review.access import person_name


def write_draft(run: Run, author: User, fields: Mapping[str, Any], quotes: tuple[Quote, ...]) -> str:
    """Return the audit file of a filled-in form. Raises AuditError for a text that a file cannot carry."""
    return write_audit(
        Draft(
            run_id=run.run_id,
            problem=run.problem.slug,
            gpu=run.gpu_id,
            verdict=fields["verdict"],
            auditor=person_name(author),
            summary=fields["summary"],
            acknowledge=fields["acknowledge"] or None,
            checked=tuple(fields["checked"]),
            evidence=fields["evidence"] or None,
            quotes=quotes,
            supersedes=tuple(fields["supersedes"]),
        )
    )


def check_file(run: Run, data: bytes, name: str) -> AuditRecord:
    """Return an uploaded audit. Raises AuditError, with the place, for one that is unreadable or means another run."""
    audit = read_audit(data, name, run.deck_id)
    if audit.status == "unreadable":
        place = f" (line {audit.error_line}, column {audit.error_column})" if audit.error_line else ""
        raise AuditError(f"{name} does not read as YAML: {audit.error}{place}")
    if audit.run_id != run.run_id:
        raise AuditError(f"{name} judges the run {audit.run_id or 'that it does not name'}, not {run.run_id}")
    return audit


@transaction.atomic
def store_audit(run: Run, data: bytes, name: str, author: User, at: datetime.datetime) -> tuple[Audit, bool]:
    """Store an audit file of a run and assess the run again; return the row and whether it was already held.

    Raises AuditError for a file that does not mean this run and no other.
    """
    audit = check_file(run, data, name)
    source = Source(at, author, may_settle=author.has_perm("leaderboard.write_audit"))
    report = ingest_items([AuditItem(name, audit, data)], source)
    row = Audit.objects.get(deck=run.deck_id, file=audit.file, digest=audit.digest)
    if row.run_id != run.pk:
        raise AuditError(f"{name} does not say which GPU it means; add a line such as gpu: {run.gpu_id}")
    recompute_all(runs=report.touched | {run.pk})
    return row, report.audits_held > 0
