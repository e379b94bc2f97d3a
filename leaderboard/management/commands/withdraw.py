"""Withdraw runs."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from grading.words import counted
from leaderboard import publishing
from leaderboard.management.base import DecisionCommand, find_run


class Command(DecisionCommand):
    """``withdraw DECK/GPU/RUN_ID... --as USERNAME --reason TEXT``."""

    help = "Withdraw one or more runs; all or none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the runs."""
        super().add_arguments(parser)
        parser.add_argument("runs", nargs="+", metavar="DECK/GPU/RUN_ID")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write one decision per run, or say what forbids it."""
        act = self.act(options)
        try:
            decisions = publishing.decide_all(publishing.withdraw, [find_run(name) for name in options["runs"]], act)
        except publishing.PublishingError as error:
            raise CommandError(str(error)) from error
        data = [{"sequence": decision.sequence, "run": str(decision.run)} for decision in decisions]
        self.print_result(options, f"withdraw: {counted(len(decisions), 'run')} decided", data)
