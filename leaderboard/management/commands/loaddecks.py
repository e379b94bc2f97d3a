"""Check the catalogue files, and load them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from grading.hardware import load_gpus
from grading.integrity import RULES
from grading.names import load_models
from grading.problem import load_decks
from grading.tomldata import CatalogueError
from leaderboard import catalogue
from leaderboard.management.base import ProoflineCommand


class Command(ProoflineCommand):
    """``loaddecks [--check]``."""

    help = "Load decks, problems, GPUs and models from the catalogue files; --check only checks them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the check-only switch."""
        super().add_arguments(parser)
        parser.add_argument("--check", action="store_true", help="check the files, store nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check everything; then store unless only a check was asked for."""
        try:
            decks, gpus, models = load_decks(), load_gpus(), load_models()
            for deck in decks.values():
                unknown = set(deck.severity) - set(RULES)
                if unknown:
                    raise CatalogueError(f"deck {deck.id}: severity names {sorted(unknown)[0]!r}, which is no rule")
        except CatalogueError as error:
            raise CommandError(str(error)) from error
        counts = {
            "decks": len(decks),
            "gpus": len(gpus),
            "problems": sum(len(deck.problems) for deck in decks.values()),
            "models": len(models),
        }
        if not options["check"]:
            counts = catalogue.sync()
        verb = "checked" if options["check"] else "loaded"
        self.print_result(options, f"{verb} " + ", ".join(f"{n} {name}" for name, n in counts.items()), counts)
