"""What cross-run rules know of each run. Derived: everything here can be deleted and rebuilt to the same bytes."""

from django.db import models

from leaderboard.models.evidence import Run


class Signature(models.Model):
    """A run's signature, and what an index of earlier runs says about it."""

    run = models.OneToOneField(Run, models.CASCADE, primary_key=True, related_name="signature")
    version = models.CharField(max_length=20)
    content = models.BinaryField()
    neighbours = models.BinaryField()
    neighbours_digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.run_id}"


class SharedKey(models.Model):
    """One hashed value of a signature, so that runs that share it are found without comparing runs."""

    value = models.BigIntegerField(db_index=True)
    run = models.ForeignKey(Run, models.CASCADE, related_name="+")

    def __str__(self) -> str:
        return f"{self.value}: {self.run_id}"
