"""Show how a run's score follows from its log, what the rules found, and whether it may be published."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from leaderboard.explain import explain, render
from leaderboard.management.base import ProoflineCommand, find_run


class Command(ProoflineCommand):
    """``explain DECK/GPU/RUN_ID``."""

    help = "Print a run's per-shape table, interval, findings and eligibility."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run."""
        super().add_arguments(parser)
        parser.add_argument("run", metavar="DECK/GPU/RUN_ID")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the explanation as a table or as JSON."""
        data = explain(find_run(options["run"]), timezone.now())
        self.print_result(options, render(data), data)
