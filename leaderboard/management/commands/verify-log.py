"""Prove that the decisions' hash chain is whole."""

from typing import Any

from django.core.management.base import CommandError

from leaderboard.management.base import ProoflineCommand
from leaderboard.models import Decision
from leaderboard.publishing import verify_log


class Command(ProoflineCommand):
    """``verify-log``."""

    help = "Recompute the hash chain of all decisions; fails at the first break."

    def handle(self, *args: Any, **options: Any) -> None:
        """Check every decision."""
        faults = verify_log()
        if faults:
            raise CommandError("; ".join(faults))
        count = Decision.objects.count()
        self.print_result(options, f"{count} decisions, chain whole", {"decisions": count, "faults": []})
