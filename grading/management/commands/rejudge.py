"""Judge recorded evidence again by the rules of today; needs no GPU."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from grading.evidence import read_evidence
from grading.record import RecordError
from grading.rundir import unpack_evidence
from grading.verdict import judge


class Command(BaseCommand):
    """``rejudge EVIDENCE.json``: the verdict as JSON, and its exit status as ``grade`` has it."""

    help = "Print the verdict that today's rules give on recorded evidence."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the evidence's file."""
        parser.add_argument("evidence", type=Path, help="an archive's evidence.json, or evidence.json.gz")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, judge, print."""
        try:
            data = options["evidence"].read_bytes()
            evidence = read_evidence(unpack_evidence(data) if options["evidence"].suffix == ".gz" else data)
        except (OSError, RecordError, msgspec.DecodeError) as error:
            raise CommandError(f"{options['evidence']} is no evidence: {error}", returncode=4) from error
        verdict = judge(evidence)
        self.stdout.write(msgspec.json.encode(verdict).decode())
        sys.exit(verdict.exit_code)
