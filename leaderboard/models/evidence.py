"""What was received: raw bytes, runs, audits, and what had to be refused. Rows are added, never edited."""

from django.conf import settings
from django.db import models

from leaderboard.models.catalogue import Deck, Entrant, Gpu, Problem


class Blob(models.Model):
    """The bytes of one received file, stored once under their SHA-256 digest, zlib-compressed."""

    digest = models.CharField(max_length=64, primary_key=True)
    size_bytes = models.BigIntegerField()
    content = models.BinaryField()

    def __str__(self) -> str:
        return self.digest[:12]


class Run(models.Model):
    """One archived attempt. The columns repeat what lists filter and sort by; `record` is the whole typed record."""

    deck = models.ForeignKey(Deck, models.PROTECT, related_name="runs")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="runs")
    run_id = models.CharField(max_length=200)
    problem = models.ForeignKey(Problem, models.PROTECT, related_name="runs")
    entrant = models.ForeignKey(Entrant, models.PROTECT, related_name="runs")
    started_at = models.DateTimeField(null=True)
    reported_text = models.CharField(max_length=200, null=True)
    is_correct = models.BooleanField(null=True)
    solution_digest = models.CharField(max_length=64, null=True, db_index=True)
    content_digest = models.CharField(max_length=64)
    record = models.BinaryField()
    ingested_at = models.DateTimeField()
    uploader = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="uploads")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["deck", "gpu", "run_id"], name="run_key_unique")]
        permissions = [("ingest", "Can ingest archives")]
        indexes = [
            models.Index(fields=["deck", "gpu", "problem", "entrant"], name="run_cell"),
            models.Index(fields=["-run_id", "deck", "gpu"], name="run_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.deck_id}/{self.gpu_id}/{self.run_id}"


class Audit(models.Model):
    """A person's verdict on a run as one received file.

    `named_run` is the run id that the file means, None where it means no single run; `run` is set once that run is
    known and no other could be meant.
    """

    deck = models.CharField(max_length=40)
    named_run = models.CharField(max_length=200, null=True)
    gpu = models.CharField(max_length=40, null=True)
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="audits")
    file = models.CharField(max_length=300)
    digest = models.CharField(max_length=64)
    status = models.CharField(max_length=20)
    verdict = models.CharField(max_length=40)
    auditor = models.CharField(max_length=300, null=True)
    summary = models.TextField(null=True)
    content = models.BinaryField()
    ingested_at = models.DateTimeField()
    uploader = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="audit_uploads")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["deck", "file", "digest"], name="audit_file_once")]
        permissions = [("write_audit", "Can write audits")]
        indexes = [models.Index(fields=["named_run", "deck"], name="audit_named_run")]

    def __str__(self) -> str:
        return f"{self.deck}/{self.file}"


class Rejection(models.Model):
    """A received file that could not become a row, or a run that arrived again with other content."""

    path = models.CharField(max_length=1000)
    digest = models.CharField(max_length=64)
    reason = models.TextField()
    is_conflict = models.BooleanField(default=False)
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="conflicts")
    received_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["path", "digest"], name="rejection_once")]
        ordering = ["-received_at", "path"]

    def __str__(self) -> str:
        return self.path
