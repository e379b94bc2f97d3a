"""Publish the next release."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from leaderboard import publishing, selection
from leaderboard.management.base import DecisionCommand


class Command(DecisionCommand):
    """``release --as USERNAME --reason TEXT [--dry-run]``."""

    help = "Take an immutable snapshot of all publishable cells; the public site shows it from then on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the preview switch."""
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="count what the release would hold, store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Take the snapshot, or count it."""
        act = self.act(options)
        if options["dry_run"]:
            rows = selection.choose_cells(act.at)
            counts = selection.count(rows)
            self.print_result(options, f"dry run, nothing stored: {_words(counts)}", {"cells": counts})
            return
        try:
            made = publishing.release(act)
        except publishing.PublishingError as error:
            raise CommandError(str(error)) from error
        counts = selection.count(made.cells.all())
        data = {"number": made.number, "digest": made.digest, "cells": counts}
        self.print_result(options, f"release {made.number} ({made.digest[:12]}): {_words(counts)}", data)


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in counts.items()) or "no cells"
