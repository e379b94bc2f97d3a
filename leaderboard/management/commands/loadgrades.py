"""Take grades that were made without the service as verifications."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from leaderboard.management.base import ProoflineCommand
from leaderboard.service.recorded import load_grades


class Command(ProoflineCommand):
    """``loadgrades FOLDER``."""

    help = "Take the archives that grade or a survey wrote as verifications of the runs with the same sources."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add where the archives are."""
        super().add_arguments(parser)
        parser.add_argument("folder", type=Path, metavar="FOLDER", help="archives with evidence, at any depth")

    def handle(self, *args: Any, **options: Any) -> None:
        """Load them, and tell what was passed over."""
        folder: Path = options["folder"]
        if not folder.is_dir():
            raise CommandError(f"{folder} is no folder; FOLDER holds archives with evidence.json")
        loaded = load_grades(folder, timezone.now())
        for path, reason in loaded.passed_over:
            self.stderr.write(f"{path}: {reason}")
        data = {"grades": [{"run": run, "word": word} for run, word in loaded.words], "held": loaded.held}
        data["passed_over"] = [{"path": path, "reason": reason} for path, reason in loaded.passed_over]
        self.print_result(options, loaded.summary(), data)
