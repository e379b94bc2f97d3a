"""Publication: decisions, waivers, states and releases. Only publishing.py writes here."""

from django.conf import settings
from django.db import models

from leaderboard.models.catalogue import Deck, Entrant, Gpu, Problem
from leaderboard.models.evidence import Run


class Decision(models.Model):
    """One act of publication: append-only, each row chained to the one before by its hash."""

    class Kind(models.TextChoices):
        """What was decided."""

        APPROVE = "approve"
        REJECT = "reject"
        WITHDRAW = "withdraw"
        WAIVE = "waive"
        REUSE = "historical_reuse"
        PIN = "pin"
        RELEASE = "release"

    sequence = models.BigIntegerField(unique=True)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="decisions")
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="decisions")
    at = models.DateTimeField()
    reason = models.TextField()
    evidence_digest = models.CharField(max_length=64, null=True)
    details = models.JSONField()
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)

    class Meta:
        ordering = ["sequence"]
        permissions = [("decide", "Can approve, reject, withdraw, pin, waive and release")]
        constraints = [
            models.CheckConstraint(name="decision_has_reason", condition=~models.Q(reason="")),
        ]

    def __str__(self) -> str:
        return f"#{self.sequence} {self.kind}"


class Publication(models.Model):
    """Where a run stands in publication. A run without a row was never decided on."""

    class State(models.TextChoices):
        """The last decision that still counts."""

        APPROVED = "approved"
        REJECTED = "rejected"
        WITHDRAWN = "withdrawn"

    run = models.OneToOneField(Run, models.PROTECT, primary_key=True, related_name="publication")
    state = models.CharField(max_length=10, choices=State.choices)
    decision = models.ForeignKey(Decision, models.PROTECT, related_name="+")
    evidence_digest = models.CharField(max_length=64)
    is_pinned = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.run_id}: {self.state}"


class Waiver(models.Model):
    """An approver's written exception for one finding code on named runs."""

    code = models.CharField(max_length=60)
    runs = models.ManyToManyField(Run, related_name="waivers")
    batch = models.CharField(max_length=200)
    reason = models.TextField()
    is_reuse = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True)
    decision = models.ForeignKey(Decision, models.PROTECT, related_name="waivers")

    class Meta:
        constraints = [
            models.CheckConstraint(name="waiver_has_reason", condition=~models.Q(reason="")),
        ]

    def __str__(self) -> str:
        return f"{self.code} on {self.batch}"


class Release(models.Model):
    """An immutable, numbered snapshot of the boards."""

    number = models.IntegerField(unique=True)
    digest = models.CharField(max_length=64)
    note = models.TextField()
    created_at = models.DateTimeField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="releases")
    decision = models.OneToOneField(Decision, models.PROTECT, related_name="release")

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"release {self.number}"


class ReleasedCell(models.Model):
    """One cell as a release holds it. What may be shown of it today is decided in boards.py."""

    class Status(models.TextChoices):
        """What the board says about the cell."""

        PUBLISHED = "published"
        WITHHELD = "withheld"
        FAILED = "failed"

    release = models.ForeignKey(Release, models.PROTECT, related_name="cells")
    cell = models.CharField(max_length=420)
    deck = models.ForeignKey(Deck, models.PROTECT, related_name="+")
    problem = models.ForeignKey(Problem, models.PROTECT, related_name="+")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="+")
    entrant = models.ForeignKey(Entrant, models.PROTECT, related_name="+")
    run = models.ForeignKey(Run, models.PROTECT, related_name="released_cells")
    status = models.CharField(max_length=10, choices=Status.choices)
    score = models.FloatField(null=True)
    score_low = models.FloatField(null=True)
    score_high = models.FloatField(null=True)
    reasons = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["release", "cell"], name="released_cell_unique"),
            models.CheckConstraint(
                name="released_score_only_if_published",
                condition=models.Q(
                    status="published", score__isnull=False, score_low__isnull=False, score_high__isnull=False
                )
                | (~models.Q(status="published") & models.Q(score=None, score_low=None, score_high=None)),
            ),
        ]
        indexes = [
            models.Index(fields=["release", "deck", "gpu"], name="released_board"),
            models.Index(fields=["run", "status"], name="released_run_status"),
        ]
        ordering = ["cell"]

    def __str__(self) -> str:
        return self.cell
