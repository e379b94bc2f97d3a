"""Assess runs again whose evidence, problem, peaks or rules changed, or show what that would alter."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from grading.proposal import Proposal, read_proposal
from grading.tomldata import CatalogueError
from leaderboard import catalogue
from leaderboard.management.base import ProoflineCommand
from leaderboard.preview import preview
from leaderboard.recompute import recompute_all


class Command(ProoflineCommand):
    """``recompute [--all] [--dry-run] [--rules FILE]``."""

    help = "Recompute scores and findings; only runs whose evidence changed, unless --all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the switches to do everything again, or to change nothing."""
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="assess every run again")
        parser.add_argument("--dry-run", action="store_true", help="show which cells would change, and change nothing")
        parser.add_argument(
            "--rules", type=Path, metavar="FILE", help="a proposal of severities and peak tables; implies --dry-run"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Sync the catalogue and assess, or preview."""
        if options["dry_run"] or options["rules"]:
            self._preview(options)
            return
        catalogue.sync()
        report = recompute_all(is_forced=options["all"])
        self.print_result(options, report.summary(), {"seen": report.seen, "assessed": report.assessed})

    def _preview(self, options: dict[str, Any]) -> None:
        try:
            proposal = read_proposal(options["rules"]) if options["rules"] else Proposal()
        except (CatalogueError, OSError) as error:
            raise CommandError(str(error)) from error
        found = preview(proposal, timezone.now())
        if not options["json"]:
            for word, cells in (("gained", found.gained), ("lost", found.lost), ("withheld", found.published_lost)):
                self.stdout.writelines(f"{word:9} {cell}" for cell in cells)
            for move in found.moved:
                self.stdout.write(f"moved     {move.cell}  {move.before[1]:.4g} -> {move.after[1]:.4g}")
        self.print_result(options, found.summary(), found.data())
