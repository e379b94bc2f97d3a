"""Load archives into a database of their own, publish what may be published, and serve it."""

import os
import secrets
import socket
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from grading.words import counted
from leaderboard import publishing
from leaderboard.ingest import Source, ingest_paths
from leaderboard.models import Run
from leaderboard.recompute import recompute_all
from leaderboard.service.recorded import load_grades

USERNAME = "demo"


class Command(BaseCommand):
    """``demo ARCHIVE ... [--grades FOLDER] [--port N] [--no-serve]``."""

    help = "Migrate, ingest archives, approve what is eligible, take a release, serve it on 127.0.0.1."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the archives and where to serve them."""
        parser.add_argument("archives", type=Path, nargs="+", metavar="ARCHIVE")
        parser.add_argument("--grades", type=Path, metavar="FOLDER", help="grades of its runs; see loadgrades")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--no-serve", action="store_true", help="stop after the release")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the database, then hand over to the server."""
        archives: list[Path] = options["archives"]
        for archive in archives:
            if not archive.exists():
                raise CommandError(f"{archive} does not exist; ARCHIVE is a folder or a bundle of run archives")
        if not options["no_serve"] and not _is_free(options["port"]):
            raise CommandError(f"port {options['port']} is taken; choose another one: make demo PORT=8001")
        call_command("migrate", verbosity=0)
        report = ingest_paths(archives, Source(timezone.now()))
        for path, reason in report.rejected:
            self.stderr.write(f"{path}: {reason}")
        recompute_all()
        self.stdout.write(report.summary())
        if options["grades"]:
            self.stdout.write(load_grades(options["grades"], timezone.now()).summary())
        password = _demo_user()
        self._publish()
        self.stdout.write(f"\nProofline  http://127.0.0.1:{options['port']}/")
        self.stdout.write(
            f"staff      http://127.0.0.1:{options['port']}/admin/  user {USERNAME}  password {password}\n"
        )
        if not options["no_serve"]:
            self.stdout.flush()
            _serve(options["port"])

    def _publish(self) -> None:
        actor = User.objects.get(username=USERNAME)
        why = "Approved by the demo command: eligible by every rule; audits that say interesting count as acknowledged."
        act = publishing.Act(actor, why, timezone.now())
        runs = Run.objects.filter(assessment__standing="eligible", publication__isnull=True)
        related = ("problem", "entrant", "assessment", "publication")
        chosen = runs.select_related(*related).order_by("pk")
        approved, refused = publishing.approve_many(chosen, act, is_acknowledged=True)
        for _, reason in refused:
            self.stderr.write(reason)
        try:
            made = publishing.release(publishing.Act(actor, "Release of the demo archive.", timezone.now()))
            self.stdout.write(f"{counted(len(approved), 'run')} approved; release {made.number} ({made.digest[:12]})")
        except publishing.PublishingError as error:
            self.stdout.write(str(error))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _demo_user() -> str:
    """Make the demo's staff user on first use; return its password, which is kept beside the demo's database."""
    path = settings.VAR_DIR / "demo-password"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(9))
    password = path.read_text().strip()
    user, is_new = User.objects.get_or_create(username=USERNAME, defaults={"is_staff": True, "is_superuser": True})
    if is_new or not user.check_password(password):
        user.set_password(password)
        user.save()
    return password


def _serve(port: int) -> None:
    """Replace this process by the server, so that Ctrl-C reaches it and nothing is left behind."""
    if settings.SITE_URL == settings.DEFAULT_URL:
        os.putenv("PROOFLINE_URL", f"http://127.0.0.1:{port}")
    command = [
        sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--blocking-threads", "4", "--log-level", "warning", "leaderboard.wsgi:application",
    ]  # fmt: skip
    os.execv(sys.executable, command)
