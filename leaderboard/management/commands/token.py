"""Make, list and revoke API tokens."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.utils import timezone

from leaderboard import tokens
from leaderboard.management.base import ProoflineCommand
from leaderboard.models import ApiToken
from leaderboard.representation import rfc3339


class Command(ProoflineCommand):
    """``token create --user U --name N --scope S [--days D]``, ``token list [--user U]``, ``token revoke KEY``."""

    help = "Make, list and revoke API tokens. A token's text is printed once, when it is made."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what to do, and for whom."""
        super().add_arguments(parser)
        parser.add_argument("action", choices=["create", "list", "revoke"])
        parser.add_argument("key", nargs="?", help="revoke: the token as listed, such as pl_1a2b3c4d")
        parser.add_argument("--user", metavar="USERNAME")
        parser.add_argument("--name", default="", help="create: what the token is for")
        parser.add_argument("--scope", action="append", default=[], choices=ApiToken.Scope.values)
        parser.add_argument("--days", type=int, default=90, help="create: after how many days it expires")
        parser.add_argument("--uploads-per-hour", type=int, metavar="N", help="create: a limit of its own")
        parser.add_argument("--verification-minutes", type=int, metavar="N", help="create: minutes of its own")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        {"create": self._create, "list": self._list, "revoke": self._revoke}[options["action"]](options)

    def _create(self, options: dict[str, Any]) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"--user is {options['user']!r}, which is no active user")
        try:
            row, text = tokens.make_token(
                user,
                options["name"],
                options["scope"],
                timezone.now(),
                days=options["days"],
                uploads_per_hour=options["uploads_per_hour"],
                verification_minutes=options["verification_minutes"],
            )
        except tokens.TokenError as error:
            raise CommandError(str(error)) from error
        self.print_result(options, text, {**_data(row), "token": text})

    def _list(self, options: dict[str, Any]) -> None:
        rows = ApiToken.objects.select_related("owner")
        rows = rows.filter(owner__username=options["user"]) if options["user"] else rows
        found = [_data(row) for row in rows]
        lines = [
            f"{row['key']}  {row['user']}  {','.join(row['scopes'])}  {row['name']}  expires {row['expires_at']}"
            f"{'  REVOKED' if row['revoked_at'] else ''}"
            for row in found
        ]
        self.print_result(options, "\n".join(lines) or "no tokens", found)

    def _revoke(self, options: dict[str, Any]) -> None:
        row = ApiToken.objects.filter(key=(options["key"] or "").removeprefix(tokens.PREFIX)).first()
        if row is None:
            raise CommandError(f"{options['key']!r} is no token; give it as `token list` shows it")
        tokens.revoke(row, timezone.now())
        row.refresh_from_db()
        self.print_result(options, f"{row} revoked", _data(row))


def _data(row: ApiToken) -> dict[str, Any]:
    return {
        "key": str(row),
        "user": row.owner.get_username(),
        "name": row.name,
        "scopes": row.scopes,
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
        "revoked_at": rfc3339(row.revoked_at),
        "last_used_at": rfc3339(row.last_used_at),
        "uploads_per_hour": row.uploads_per_hour,
        "verification_minutes": row.verification_minutes,
    }
