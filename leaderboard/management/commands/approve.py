"""Approve runs for the next release."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from grading.words import counted
from leaderboard import publishing, selection
from leaderboard.management.base import DecisionCommand, find_run
from leaderboard.models import Run


class Command(DecisionCommand):
    """``approve (DECK/GPU/RUN_ID... | --eligible [--deck D] [--gpu G]) --as USERNAME --reason TEXT``."""

    help = "Approve named runs (all or none), or every eligible run that is not approved yet."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the runs, or how to choose them."""
        super().add_arguments(parser)
        parser.add_argument("runs", nargs="*", metavar="DECK/GPU/RUN_ID")
        parser.add_argument("--eligible", action="store_true", help="every eligible run; names those that are refused")
        parser.add_argument("--deck", help="with --eligible: only this deck")
        parser.add_argument("--gpu", help="with --eligible: only this GPU")
        parser.add_argument("--acknowledge", action="store_true", help="the audits that say interesting were read")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write one decision per run, or say what forbids it."""
        act = self.act(options)
        if bool(options["runs"]) == options["eligible"]:
            raise CommandError("name runs, or give --eligible, but not both")
        if options["eligible"]:
            approved, refused = publishing.approve_many(_eligible(options), act, is_acknowledged=options["acknowledge"])
        else:
            runs, refused = [find_run(name) for name in options["runs"]], []
            try:
                approved = publishing.approve_all(runs, act, is_acknowledged=options["acknowledge"])
            except publishing.PublishingError as error:
                raise CommandError(str(error)) from error
        for run, reason in refused:
            self.stderr.write(f"{run}: {reason}")
        data = {"approved": [str(run) for run in approved], "refused": [[str(run), why] for run, why in refused]}
        self.print_result(options, f"{counted(len(approved), 'run')} approved, {len(refused)} refused", data)


def _eligible(options: dict[str, Any]) -> list[Run]:
    runs = Run.objects.select_related("problem", "entrant", "assessment", "publication").order_by("pk")
    for name in ("deck", "gpu"):
        if options[name]:
            runs = runs.filter(**{name: options[name]})
    now = timezone.now()
    chosen = runs.filter(assessment__standing="eligible").defer("record")
    return [run for run in chosen if not selection.is_publishable(run, now)]
