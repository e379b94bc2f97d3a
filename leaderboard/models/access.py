"""Who may write through the API: tokens, kept as digests only."""

import datetime

from django.conf import settings
from django.db import models


class ApiToken(models.Model):
    """A person's token for the API. Only its SHA-256 digest is stored; the text is shown once, when it is made.

    uploads_per_hour, verification_minutes  limits of its own in place of the settings'
    """

    class Scope(models.TextChoices):
        """What a token may do. Approval is not among them: a person does that, signed in."""

        READ = "read"
        INGEST = "ingest"
        AUDIT = "audit"
        VERIFY = "verify"

    key = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    scopes = models.JSONField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    uploads_per_hour = models.PositiveIntegerField(null=True)
    verification_minutes = models.PositiveIntegerField(null=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                name="token_expires_after_it_is_made", condition=models.Q(expires_at__gt=models.F("created_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"pl_{self.key}"

    def is_active(self, at: datetime.datetime) -> bool:
        """Tell whether the token itself still counts, whoever holds it."""
        return self.revoked_at is None and self.expires_at > at
