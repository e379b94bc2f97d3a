"""Write cells or runs to standard output or a file, as the public may see them."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from leaderboard import exports
from leaderboard.boards import latest_release
from leaderboard.boards.listing import filter_cells
from leaderboard.boards.state import read_state
from leaderboard.memory import read_snapshot
from leaderboard.models import Release
from leaderboard.parquet import ParquetError, to_parquet

FORMATS = ("csv", "json", "ndjson", "parquet")


class Command(BaseCommand):
    """``export cells|runs --format csv|json|ndjson|parquet [--deck D] [--gpu G] [--release N] [--output FILE]``."""

    help = "Export what the public may see: the same data as the API's lists."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what to export, how, and where to."""
        parser.add_argument("what", choices=["cells", "runs"])
        parser.add_argument("--format", choices=list(FORMATS), default="csv")
        parser.add_argument("--deck")
        parser.add_argument("--gpu")
        parser.add_argument("--release", type=int, metavar="N", help="cells of this release; the latest by default")
        parser.add_argument("--output", type=Path, metavar="FILE", help="a file instead of standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stream the lines; the summary goes to standard error, so that the output holds data only."""
        if options["format"] == "parquet" and not options["output"]:
            raise CommandError("parquet is binary; name a file with --output")
        filters = {name: options[name] for name in ("deck", "gpu") if options[name]}
        chunks = _cells(options, filters) if options["what"] == "cells" else _runs(options, filters)
        size = 0
        with options["output"].open("wb") if options["output"] else nullcontext() as file:
            for chunk in chunks:
                size += len(chunk)
                if file is not None:
                    file.write(chunk)
                else:
                    self.stdout.write(chunk.decode(), ending="")
        self.stderr.write(f"{options['what']} as {options['format']}: {size} bytes")


def _cells(options: dict[str, Any], filters: dict[str, str]) -> Iterator[bytes]:
    now = timezone.now()
    state = read_state(now)
    release = latest_release()
    if options["release"] is not None:
        release = Release.objects.filter(number=options["release"]).first()
    if release is None:
        raise CommandError(f"release {options['release'] or ''} does not exist; take one first".replace("  ", " "))
    snapshot = read_snapshot(state, release, now)
    if options["format"] == "csv":
        return exports.join_text(exports.cell_table(filter_cells(snapshot.cells, filters)))
    return _packed(exports.cell_lines(snapshot, filters), options["format"])


def _runs(options: dict[str, Any], filters: dict[str, str]) -> Iterator[bytes]:
    now = timezone.now()
    if options["format"] == "csv":
        return exports.join_text(exports.run_table(filters, now))
    return _packed(exports.run_lines(filters, now), options["format"])


def _packed(lines: Iterable[bytes], form: str) -> Iterator[bytes]:
    if form == "parquet":
        try:
            return iter([to_parquet(lines)])
        except ParquetError as error:
            raise CommandError(str(error)) from error
    return exports.join_lines(lines) if form == "ndjson" else _array(lines)


def _array(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one JSON array."""
    separator = b"[\n"
    for line in lines:
        yield separator + line
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"
