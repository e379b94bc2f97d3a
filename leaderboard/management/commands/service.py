"""Run the web side of the grading service."""

import logging
import signal
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from grading.tasks import FOLDER_SCHEME
from leaderboard.celery import app, serve


class Command(BaseCommand):
    """``service``: takes the hosts' messages, sends wake-ups, and lets lost jobs wait again, until SIGTERM."""

    help = "Run the control worker and the sweeper of the grading service."

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until told to stop."""
        logging.getLogger("leaderboard").setLevel(logging.INFO)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.stdout.write(f"grading service on {_address()}; stop it with Ctrl-C")
        self.stdout.flush()
        sys.exit(serve())


def _address() -> str:
    """Return the broker's address without its password."""
    if settings.BROKER_URL.startswith(FOLDER_SCHEME):
        return str(settings.BROKER_URL)
    return str(app.connection_for_write().as_uri())
