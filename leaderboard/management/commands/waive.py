"""Except one finding code on a named batch of runs."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from grading.words import counted
from leaderboard import publishing
from leaderboard.management.base import DecisionCommand, find_run, parse_expiry
from leaderboard.models import Run


class Command(DecisionCommand):
    """``waive CODE (DECK/GPU/RUN_ID... | --deck D [--gpu G]) --batch NAME --as USERNAME --reason TEXT``."""

    help = "Waive a finding code on named runs, or on all runs of a deck that have it; --reuse for old archives."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the code, the runs and the terms."""
        super().add_arguments(parser)
        parser.add_argument("code", help="finding code, for example gpu.unproven")
        parser.add_argument("runs", nargs="*", metavar="DECK/GPU/RUN_ID")
        parser.add_argument("--deck", help="all runs of this deck that have the finding")
        parser.add_argument("--gpu", help="with --deck: only this GPU")
        parser.add_argument("--batch", required=True, help="what these runs are called together")
        parser.add_argument("--expires", metavar="DATE", help="when the finding blocks again; an ISO date or time")
        parser.add_argument("--reuse", action="store_true", help="record it as a historical-reuse decision")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the waiver and assess its runs again."""
        act = self.act(options)
        if bool(options["runs"]) == bool(options["deck"]):
            raise CommandError("name runs, or give --deck, but not both")
        runs = [find_run(name) for name in options["runs"]] or _with_finding(options)
        try:
            waiver = publishing.waive(
                options["code"],
                runs,
                act,
                batch=options["batch"],
                expires_at=parse_expiry(options["expires"]),
                is_reuse=options["reuse"],
            )
        except publishing.PublishingError as error:
            raise CommandError(str(error)) from error
        data = {"waiver": waiver.pk, "code": waiver.code, "runs": len(runs), "batch": waiver.batch}
        self.print_result(options, f"{waiver.code} waived on {counted(len(runs), 'run')} ({waiver.batch})", data)


def _with_finding(options: dict[str, Any]) -> list[Run]:
    runs = Run.objects.filter(deck=options["deck"], findings__code=options["code"])
    if options["gpu"]:
        runs = runs.filter(gpu=options["gpu"])
    return list(runs.defer("record").distinct().order_by("pk"))
