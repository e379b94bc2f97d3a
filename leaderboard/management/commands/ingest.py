"""Read archives and audits into the database, then assess what changed."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from leaderboard.ingest import Source, ingest_paths
from leaderboard.management.base import ProoflineCommand
from leaderboard.recompute import recompute_all


class Command(ProoflineCommand):
    """``ingest PATH... [--deck D --gpu G] [--dry-run]``."""

    help = "Ingest run directories, trees of them, .zip/.tar.gz bundles, audit files or folders."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the paths and what they cannot say themselves."""
        super().add_arguments(parser)
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
        parser.add_argument("--deck", help="deck of run directories whose path does not name it")
        parser.add_argument("--gpu", help="GPU key of run directories whose path does not name it")
        parser.add_argument("--dry-run", action="store_true", help="report what would happen, store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ingest, recompute the touched runs, name every rejected file."""
        for path in options["paths"]:
            if not path.exists():
                raise CommandError(f"{path} does not exist")
        report = ingest_paths(
            options["paths"],
            Source(timezone.now()),
            deck=options["deck"],
            gpu=options["gpu"],
            is_dry_run=options["dry_run"],
        )
        for path, reason in [*report.rejected, *report.conflicts]:
            self.stderr.write(f"{path}: {reason}")
        if not options["dry_run"]:
            recompute_all(runs=report.touched)
        prefix = "dry run, nothing stored: " if options["dry_run"] else ""
        data = {
            "runs_new": report.runs_new,
            "runs_held": report.runs_held,
            "audits_new": report.audits_new,
            "audits_held": report.audits_held,
            "rejected": [{"path": path, "reason": reason} for path, reason in report.rejected],
            "conflicts": [{"run": path, "digest": digest} for path, digest in report.conflicts],
            "is_dry_run": options["dry_run"],
        }
        self.print_result(options, prefix + report.summary(), data)
