"""Cases of rules on audits."""

from grading.auditfile import Audit, read_audit
from grading.integrity import Context
from tests.factories import RUN_ID, make_audit, make_context


def audited(*audits: Audit) -> Context:
    return make_context(audits=audits)


def text(data: str) -> Context:
    return audited(read_audit(data.encode(), f"{RUN_ID}.yaml", "hard"))


CLEAN, HACK = make_audit(), make_audit("reward_hack")
COLON = f"run_id: {RUN_ID}\nverdict: clean\nmethod: read: the kernel\n"
BROKEN = f"run_id: {RUN_ID}\nverdict: clean\n\tbad: [1\n"

SPEAKS = [
    ("audit.missing", "none", lambda: audited()),
    ("audit.blocks", "a verdict", lambda: audited(HACK)),
    ("audit.blocks", "a field beside a clean verdict", lambda: audited(make_audit(publish_grade=False))),
    ("audit.blocks", "an open question", lambda: audited(make_audit(isolated_regrade_required=True))),
    ("audit.unknown_verdict", "a new word", lambda: audited(make_audit("splendid"))),
    ("audit.unreadable", "no YAML", lambda: text(BROKEN)),
    ("audit.conflict", "yes and no", lambda: audited(CLEAN, HACK)),
    ("audit.repaired", "an unquoted colon", lambda: text(COLON)),
]
SILENT = [
    ("audit.missing", "one", lambda: audited(CLEAN)),
    ("audit.blocks", "clean", lambda: audited(CLEAN)),
    ("audit.blocks", "an unknown word, which has a rule of its own", lambda: audited(make_audit("splendid"))),
    (
        "audit.unknown_verdict",
        "a word with a comment behind it",
        lambda: text(f"run_id: {RUN_ID}\nverdict: clean  # mostly\n"),
    ),
    ("audit.unreadable", "an unquoted colon that was repaired", lambda: text(COLON)),
    ("audit.conflict", "two that agree", lambda: audited(CLEAN, make_audit(auditor="B. Auditor"))),
    ("audit.repaired", "valid", lambda: audited(CLEAN)),
]
