"""What recompute derives from the evidence. Everything here can be deleted and rebuilt to the same bytes."""

import datetime

from django.db import models

from leaderboard.models.evidence import Run


class AssessmentQuerySet(models.QuerySet["Assessment"]):
    """Chainable selections of assessments."""

    def eligible(self, at: datetime.datetime) -> "AssessmentQuerySet":
        """Return the runs that may be published at a moment: eligible, and no waiver they rest on has expired."""
        return self.filter(
            models.Q(valid_until=None) | models.Q(valid_until__gt=at), standing=Assessment.Standing.ELIGIBLE
        )


class Assessment(models.Model):
    """The score, the findings' summary and the standing of one run."""

    class Standing(models.TextChoices):
        """What the evidence allows, apart from any person's decision."""

        ELIGIBLE = "eligible"
        PENDING = "pending"
        BLOCKED = "blocked"
        FAILED = "failed"

    run = models.OneToOneField(Run, models.CASCADE, primary_key=True, related_name="assessment")
    score = models.FloatField(null=True)
    score_low = models.FloatField(null=True)
    score_high = models.FloatField(null=True)
    reason = models.CharField(max_length=300, null=True)
    agrees = models.BooleanField(null=True)
    shapes = models.JSONField()
    standing = models.CharField(max_length=10, choices=Standing.choices, db_index=True)
    blockers = models.JSONField()
    waived = models.JSONField()
    valid_until = models.DateTimeField(null=True)
    verdict = models.CharField(max_length=40, null=True)
    framework = models.CharField(max_length=60, null=True)
    needs_acknowledgement = models.BooleanField(default=False)
    method_version = models.CharField(max_length=20)
    problem_version = models.CharField(max_length=64)
    peak_version = models.IntegerField()
    evidence_digest = models.CharField(max_length=64)
    evidence = models.JSONField()
    input_digest = models.CharField(max_length=64)

    objects = AssessmentQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["standing", "verdict", "framework"], name="assessment_facets")]
        constraints = [
            models.CheckConstraint(
                name="assessment_score_whole",
                condition=models.Q(score=None, score_low=None, score_high=None)
                | models.Q(score__isnull=False, score_low__isnull=False, score_high__isnull=False),
            ),
            models.CheckConstraint(
                name="assessment_eligible_has_score",
                condition=~models.Q(standing="eligible") | models.Q(score__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id}: {self.standing}"

    def is_eligible(self, at: datetime.datetime) -> bool:
        """Tell the same as `AssessmentQuerySet.eligible` for one row."""
        return is_eligible(self.standing, self.valid_until, at)


def is_eligible(standing: str, valid_until: datetime.datetime | None, at: datetime.datetime) -> bool:
    """Tell whether a standing that holds until a moment, None for ever, lets a run be published at another."""
    return standing == Assessment.Standing.ELIGIBLE and (valid_until is None or valid_until > at)


class Finding(models.Model):
    """What one integrity rule says about one run."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="findings")
    position = models.IntegerField()
    code = models.CharField(max_length=60, db_index=True)
    severity = models.CharField(max_length=10)
    message = models.TextField()
    file = models.CharField(max_length=300, null=True)
    line = models.IntegerField(null=True)
    data = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "position"], name="finding_position_unique")]
        ordering = ["run", "position"]

    def __str__(self) -> str:
        return f"{self.run_id}: {self.code}"
