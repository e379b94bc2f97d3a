"""What every Proofline command shares: JSON output, one summary line, and the acting person."""

import datetime
from argparse import ArgumentParser
from typing import Any

import orjson
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from leaderboard.models import Run
from leaderboard.publishing import Act, PublishingError


class ProoflineCommand(BaseCommand):
    """A command that prints one summary line, or one JSON document with ``--json``."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options that every command has."""
        parser.add_argument("--json", action="store_true", help="print one JSON document instead of a summary line")

    def print_result(self, options: dict[str, Any], summary: str, data: Any) -> None:
        """Print the summary line, or the data as JSON where that was asked for."""
        self.stdout.write(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() if options["json"] else summary)


class DecisionCommand(ProoflineCommand):
    """A command that writes a decision; it needs a person and a reason."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add who decides and why."""
        super().add_arguments(parser)
        parser.add_argument("--as", dest="actor", required=True, metavar="USERNAME", help="the person who decides")
        parser.add_argument("--reason", required=True, help="a sentence for the log that everyone can read")

    def act(self, options: dict[str, Any]) -> Act:
        """Return who decides, when and why. Raises CommandError for an unknown person or an empty reason."""
        user = User.objects.filter(username=options["actor"], is_active=True).first()
        if user is None:
            known = ", ".join(User.objects.filter(is_active=True).values_list("username", flat=True)[:20]) or "none yet"
            raise CommandError(f"--as is {options['actor']!r}, which is no active user; there are: {known}")
        try:
            return Act(user, options["reason"], timezone.now())
        except PublishingError as error:
            raise CommandError(str(error)) from error


def find_run(text: str) -> Run:
    """Return the run named ``DECK/GPU/RUN_ID``. Raises CommandError that says what is accepted."""
    parts = text.split("/")
    if len(parts) != 3:
        raise CommandError(f"run is {text!r}; need DECK/GPU/RUN_ID")
    run = (
        Run.objects.select_related("problem", "entrant", "assessment", "publication")
        .filter(deck=parts[0], gpu=parts[1], run_id=parts[2])
        .first()
    )
    if run is None:
        raise CommandError(f"run {text} is not held; ingest its archive first")
    return run


def parse_expiry(text: str | None) -> datetime.datetime | None:
    """Return an ISO date or time as an aware time (a date means its end in UTC). Raises CommandError otherwise."""
    return parse_moment("--expires", text, datetime.time(23, 59, 59)) if text is not None else None


def parse_moment(option: str, text: str, hour: datetime.time = datetime.time.min) -> datetime.datetime:
    """Return an ISO date (at an hour in UTC) or time as an aware time. Raises CommandError that names the option."""
    try:
        if len(text) == 10:
            return datetime.datetime.combine(datetime.date.fromisoformat(text), hour, datetime.UTC)
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{option} is {text!r}; need an ISO date or time such as 2027-01-31") from error
    if moment.tzinfo is None:
        raise CommandError(f"{option} is {text!r}; a time needs its offset, such as 2027-01-31T12:00:00+00:00")
    return moment
