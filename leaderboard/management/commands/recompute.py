"""Assess runs again whose evidence, problem, peaks or rules changed."""

from argparse import ArgumentParser
from typing import Any

from leaderboard import catalogue
from leaderboard.management.base import ProoflineCommand
from leaderboard.recompute import recompute_all


class Command(ProoflineCommand):
    """``recompute [--all]``."""

    help = "Recompute scores and findings; only runs whose evidence changed, unless --all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the switch to do everything again."""
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="assess every run again")

    def handle(self, *args: Any, **options: Any) -> None:
        """Sync the catalogue, then assess."""
        catalogue.sync()
        report = recompute_all(is_forced=options["all"])
        self.print_result(options, report.summary(), {"seen": report.seen, "assessed": report.assessed})
