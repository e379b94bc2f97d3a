"""Grading on attached GPUs: hosts, jobs and their course, and the verifications that come of them.

`jobs.py` alone writes the state of a job, `hosts.py` that of a host. Calibrations, events and verifications are
append-only: the database refuses to change or delete them.
"""

from django.conf import settings
from django.db import models

from leaderboard.models.access import ApiToken
from leaderboard.models.catalogue import Gpu, Problem
from leaderboard.models.evidence import Run


class HostState(models.TextChoices):
    """Whether a host, or one GPU of it, may grade."""

    NEW = "new"
    HEALTHY = "healthy"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class Host(models.Model):
    """A machine that grades. Its key is derived from the site's secret, its name and the serial; none is stored.

    findings  what `doctor` found there: [{name, is_there, sentence}]
    """

    name = models.CharField(max_length=40, unique=True)
    key_serial = models.PositiveIntegerField(default=1)
    registered_at = models.DateTimeField()
    last_seen = models.DateTimeField(null=True)
    versions = models.JSONField(default=dict)
    isolation = models.CharField(max_length=1, blank=True)
    findings = models.JSONField(default=list)
    state = models.CharField(max_length=12, choices=HostState.choices, default=HostState.NEW)
    reason = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class HostGpu(models.Model):
    """One GPU of a host, by the UUID that its driver gives it; `instance` is the worker that last spoke for it."""

    host = models.ForeignKey(Host, models.PROTECT, related_name="gpus")
    uuid = models.CharField(max_length=80)
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="host_gpus")
    name = models.CharField(max_length=100)
    driver = models.CharField(max_length=40, blank=True)
    instance = models.CharField(max_length=64, blank=True)
    last_seen = models.DateTimeField(null=True)
    state = models.CharField(max_length=12, choices=HostState.choices, default=HostState.NEW)
    reason = models.CharField(max_length=300, blank=True)
    calibrated_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "uuid"], name="host_gpu_unique")]
        ordering = ["host", "uuid"]

    def __str__(self) -> str:
        return f"{self.host}/{self.uuid}"


class GradeJob(models.Model):
    """One grade that somebody wants. The row is the truth about it; the broker's message is only a wake-up.

    target       the only GPU that may take a calibration
    api_token    with which its asker asked; None for a person at the desk and for policies
    token        fencing token: grows with every lease, and only its present holder may write
    deadline     when the present attempt is ended from outside
    progress     {step, shape, percent} as the host says
    cause        why it ended, or why it waits again
    gpu_seconds  for how long the recorded grade held its GPU, as its evidence says; None where that does not say
    """

    class Kind(models.TextChoices):
        """What a grade is for."""

        VERIFICATION = "verification"
        CALIBRATION = "calibration"

    class Tier(models.TextChoices):
        """How thorough the grade is."""

        QUICK = "quick"
        FULL = "full"

    class Reason(models.TextChoices):
        """Who or what asked."""

        PERSON = "person"
        RELEASE = "release"
        NEW_BEST = "new_best"
        RANDOM = "random"
        REVERIFY = "reverify"
        CONFIRM = "confirm"
        CALIBRATION = "calibration"

    class State(models.TextChoices):
        """Where a job stands; the last four are final."""

        REQUESTED = "requested"
        QUEUED = "queued"
        LEASED = "leased"
        RUNNING = "running"
        RECORDED = "recorded"
        REFUSED = "refused"
        EXPIRED = "expired"
        CANCELLED = "cancelled"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="grade_jobs")
    target = models.ForeignKey(HostGpu, models.PROTECT, null=True, related_name="calibration_jobs")
    problem = models.ForeignKey(Problem, models.PROTECT, related_name="+")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="grade_jobs")
    tier = models.CharField(max_length=5, choices=Tier.choices)
    reason = models.CharField(max_length=12, choices=Reason.choices)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    api_token = models.ForeignKey(ApiToken, models.SET_NULL, null=True, related_name="grade_jobs")
    requested_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.REQUESTED)
    sent_at = models.DateTimeField(null=True)
    attempt = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField()
    token = models.PositiveBigIntegerField(default=0)
    holder = models.ForeignKey(HostGpu, models.PROTECT, null=True, related_name="held_jobs")
    instance = models.CharField(max_length=64, blank=True)
    leased_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    lease_until = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    progress = models.JSONField(default=dict)
    cause = models.CharField(max_length=300, blank=True)
    ended_at = models.DateTimeField(null=True)
    gpu_seconds = models.FloatField(null=True)

    OPEN = (State.REQUESTED, State.QUEUED, State.LEASED, State.RUNNING)
    HELD = (State.LEASED, State.RUNNING)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="grade_job_held_has_lease",
                condition=models.Q(
                    state__in=["leased", "running"],
                    token__gt=0,
                    holder__isnull=False,
                    lease_until__isnull=False,
                    deadline__isnull=False,
                )
                | (~models.Q(state__in=["leased", "running"]) & models.Q(lease_until=None, deadline=None)),
            ),
            models.CheckConstraint(
                name="grade_job_ended_has_time",
                condition=models.Q(state__in=["recorded", "refused", "expired", "cancelled"], ended_at__isnull=False)
                | (~models.Q(state__in=["recorded", "refused", "expired", "cancelled"]) & models.Q(ended_at=None)),
            ),
            models.CheckConstraint(
                name="grade_job_about_one_thing",
                condition=models.Q(kind="verification", run__isnull=False, target=None)
                | models.Q(kind="calibration", run=None, target__isnull=False),
            ),
            models.CheckConstraint(
                name="grade_job_attempts_bounded", condition=models.Q(attempt__lte=models.F("max_attempts"))
            ),
            models.CheckConstraint(
                name="grade_job_cost_of_a_record",
                condition=models.Q(gpu_seconds=None) | models.Q(gpu_seconds__gte=0, state="recorded"),
            ),
            models.UniqueConstraint(
                fields=["run", "gpu", "tier"],
                condition=models.Q(state__in=["requested", "queued", "leased", "running"], kind="verification"),
                name="grade_job_one_open_per_run",
            ),
            models.UniqueConstraint(
                fields=["target"],
                condition=models.Q(state__in=["requested", "queued", "leased", "running"], kind="calibration"),
                name="grade_job_one_open_calibration",
            ),
        ]
        indexes = [models.Index(fields=["state", "gpu", "requested_at"], name="grade_job_waiting")]

    def __str__(self) -> str:
        return f"job {self.pk}"


class GradeEvent(models.Model):
    """One thing that happened to a job, in order; a refused late result is kept here with its evidence. Append-only.

    evidence  digest of the blob with the archive that came with it
    """

    class Kind(models.TextChoices):
        """What happened."""

        REQUESTED = "requested"
        QUEUED = "queued"
        LEASED = "leased"
        STARTED = "started"
        RETRIED = "retried"
        RECORDED = "recorded"
        REFUSED = "refused"
        EXPIRED = "expired"
        CANCELLED = "cancelled"
        LATE_RESULT = "late_result"

    job = models.ForeignKey(GradeJob, models.PROTECT, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    text = models.CharField(max_length=300, blank=True)
    token = models.PositiveBigIntegerField(null=True)
    host_gpu = models.ForeignKey(HostGpu, models.PROTECT, null=True, related_name="+")
    evidence = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.kind}"


class Verification(models.Model):
    """Our own grade of a run's solution, as judged here from the host's evidence. Append-only; one per job.

    outcome           what the rules make of it: passed, failed or inconclusive
    counts_for_board  the GPU is the run's own; else it proves an answer and no time
    shapes            [{shape, ms, published_ms, ratio}]; ratio = ms over published, None where either is missing
    score             the problem's metric from these times; None unless they count
    evidence_digest   of the blob that holds the archive
    """

    run = models.ForeignKey(Run, models.PROTECT, related_name="verifications")
    job = models.OneToOneField(GradeJob, models.PROTECT, related_name="verification")
    host_gpu = models.ForeignKey(HostGpu, models.PROTECT, related_name="+")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="+")
    gpu_uuid = models.CharField(max_length=80)
    tier = models.CharField(max_length=5, choices=GradeJob.Tier.choices)
    word = models.CharField(max_length=20)
    outcome = models.CharField(max_length=12)
    counts_for_board = models.BooleanField()
    shapes = models.JSONField()
    score = models.FloatField(null=True)
    fired = models.JSONField()
    isolation = models.CharField(max_length=1)
    solution_digest = models.CharField(max_length=64)
    problem_version = models.CharField(max_length=64)
    rules_version = models.CharField(max_length=20)
    grader_version = models.CharField(max_length=20)
    evidence_digest = models.CharField(max_length=64)
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                name="verification_score_counts",
                condition=models.Q(score=None) | models.Q(counts_for_board=True, score__gt=0, outcome="passed"),
            ),
        ]
        indexes = [models.Index(fields=["run", "-id"], name="verification_latest")]

    def __str__(self) -> str:
        return f"{self.run_id}: {self.word}"


class Calibration(models.Model):
    """A reference kernel on a host's GPU, held against the record of that GPU's key. Append-only.

    figures    {shapes_ms: [...], yardstick_ms: number or null}
    ratio      largest departure from the record as a ratio of times; None where there is no record yet
    is_record  accepted by a person as what this GPU's key is held against from here on
    """

    host_gpu = models.ForeignKey(HostGpu, models.PROTECT, related_name="calibrations")
    gpu = models.ForeignKey(Gpu, models.PROTECT, related_name="+")
    problem = models.ForeignKey(Problem, models.PROTECT, related_name="+")
    job = models.ForeignKey(GradeJob, models.PROTECT, null=True, related_name="calibrations")
    word = models.CharField(max_length=20)
    figures = models.JSONField()
    ratio = models.FloatField(null=True)
    is_accepted = models.BooleanField()
    reason = models.CharField(max_length=300, blank=True)
    is_record = models.BooleanField(default=False)
    accepted_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    evidence_digest = models.CharField(max_length=64)
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                name="calibration_refusal_has_reason", condition=models.Q(is_accepted=True) | ~models.Q(reason="")
            ),
            models.CheckConstraint(
                name="calibration_record_by_a_person",
                condition=models.Q(is_record=False) | models.Q(is_accepted=True, accepted_by__isnull=False),
            ),
        ]
        indexes = [models.Index(fields=["gpu", "problem", "is_record"], name="calibration_record")]

    def __str__(self) -> str:
        return f"{self.host_gpu_id}: {self.word}"


class SeenMessage(models.Model):
    """A message of a host that was taken, so that a copy of it is refused. Old rows are pruned by the sweeper."""

    nonce = models.CharField(max_length=32, primary_key=True)
    at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.nonce
