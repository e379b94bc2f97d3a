"""Write made-up run archives to a folder."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from grading.words import counted
from leaderboard.loadgen import write_runs
from leaderboard.management.base import ProoflineCommand


class Command(ProoflineCommand):
    """``loadgen N --out DIR``."""

    help = "Write N generated run archives to a folder, to ingest them and try the site at size."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add how many and where."""
        super().add_arguments(parser)
        parser.add_argument("count", type=int, metavar="N")
        parser.add_argument("--out", type=Path, required=True, metavar="DIR")
        parser.add_argument("--seed", type=int, default=1)

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the archives."""
        written = sum(1 for _ in write_runs(options["out"], options["count"], seed=options["seed"]))
        self.print_result(options, f"{counted(written, 'run')} written to {options['out']}", {"runs": written})
