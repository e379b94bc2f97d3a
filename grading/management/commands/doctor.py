"""Say what this host can and cannot prove about a solution."""

from argparse import ArgumentParser
from typing import Any

import msgspec
from django.core.management.base import BaseCommand

from grading.warden.hostprobe import isolation_level, probe_host

_LEVELS = {
    "A": "A: candidates are fully walled off; every verdict can be given",
    "B": "B: candidates are walled off in part; verdicts are given and carry a weaker isolation note",
    "C": "C: candidates can reach their grader; nothing can be verified here",
}


class Command(BaseCommand):
    """``doctor [--json]``."""

    help = "Try out what the grader needs on this host, and say in plain words what is missing."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the output's form."""
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print one line per ability, then the level."""
        findings = list(probe_host())
        level = isolation_level(findings)
        if options["json"]:
            self.stdout.write(msgspec.json.encode({"isolation": level, "findings": findings}).decode())
            return
        for finding in findings:
            self.stdout.write(f"{'yes' if finding.is_there else 'no ':<4} {finding.name:<16} {finding.sentence}")
        self.stdout.write(f"isolation {_LEVELS[level]}")
