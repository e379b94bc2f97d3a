"""Django application of the leaderboard."""

from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created


class LeaderboardConfig(AppConfig):
    """The project's one app."""

    name = "leaderboard"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register system checks and the SQLite pragmas."""
        from leaderboard.checks import check_roles, check_settings
        from leaderboard.database import tune_sqlite

        checks.register(check_settings, checks.Tags.security)
        checks.register(check_roles, checks.Tags.database)
        connection_created.connect(tune_sqlite, dispatch_uid="leaderboard.tune_sqlite")
