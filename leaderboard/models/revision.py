"""How often what the public sees may have changed: the counter that cache validators rest on."""

from django.db import models
from django.db.models import F
from django.db.models.functions import Now


class Revision(models.Model):
    """One row that moves with every ingest and every assessment, in their own transactions."""

    number = models.BigIntegerField()
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"revision {self.number}"

    @classmethod
    def advance(cls) -> None:
        """Tell every cache that evidence or an assessment changed; it counts from the caller's commit on."""
        if not cls.objects.filter(pk=1).update(number=F("number") + 1, changed_at=Now()):
            cls.objects.bulk_create([cls(pk=1, number=1, changed_at=Now())], ignore_conflicts=True)
