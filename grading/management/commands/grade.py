"""Grade one solution of a problem: ``grade PROBLEM (--solution FILE | --reference NAME | --archive DIR) --out DIR``."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from grading.warden import cli


class Command(BaseCommand):
    """Exit status: 0 verified, 1 incorrect or not reproduced, 2 integrity, 3 needs audit, 4 inconclusive."""

    help = "Grade a solution in two processes that it cannot influence, and write an archive directory."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the candidate, the device and the tier."""
        cli.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Grade, and leave with the verdict's status."""
        try:
            status = cli.run(options, self.stdout.write)
        except cli.GradeError as error:
            raise CommandError(str(error), returncode=4) from error
        sys.exit(status)
