"""Minutes of GPU time: what a person, or a token with an allowance of its own, may ask for and has used.

They are counted from the jobs of the last window, so nothing can be counted twice or lost with a cache. An open job
counts as what its tier usually takes, one that ended as the time that it really took, one that never began as nothing.
"""

import datetime
import math
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from leaderboard import limits
from leaderboard.limits import Allowance, Bucket
from leaderboard.models import ApiToken, GradeJob

MINUTES = {"quick": 2, "full": 10}


@dataclass(frozen=True, slots=True)
class Account:
    """Whose minutes are meant: a person's, or those of one of the person's tokens that has an allowance of its own."""

    owner: User
    token: ApiToken | None = None

    @property
    def bucket(self) -> Bucket:
        """What the account may use in which time; a quota of 0 means no limit."""
        return limits.bucket("verification", self.token.verification_minutes if self.token is not None else None)

    def jobs(self) -> QuerySet[GradeJob]:
        """Return the jobs that the account pays for."""
        if self.token is not None and self.token.verification_minutes is not None:
            return GradeJob.objects.filter(api_token=self.token)
        is_shared = Q(api_token=None) | Q(api_token__verification_minutes=None)
        return GradeJob.objects.filter(is_shared, requested_by=self.owner)


def read(account: Account, at: datetime.datetime, cost_minutes: int = 0) -> Allowance | None:
    """Return what is left to an account, and whether something of a cost is too much; None where it has no limit.

    When it is too much, the reset is when enough of what was used leaves the window.
    """
    bucket = account.bucket
    if bucket.quota == 0:
        return None
    window = datetime.timedelta(seconds=bucket.window_seconds)
    rows = account.jobs().filter(requested_at__gt=at - window).order_by("requested_at", "pk")
    fields = ("requested_at", "state", "tier", "started_at", "ended_at", "gpu_seconds")
    spent = [(job.requested_at, used_seconds(job)) for job in rows.only(*fields)]
    left = bucket.quota * 60 - sum(seconds for _, seconds in spent)
    lacking = cost_minutes * 60 - left
    free_at = at + window
    for asked_at, seconds in spent:
        if seconds > 0:
            free_at, lacking = asked_at + window, lacking - seconds
            if lacking <= 0:
                break
    reset = max(1, math.ceil((free_at - at).total_seconds()))
    return Allowance(bucket, max(0, math.floor(left / 60)), reset, cost_minutes * 60 > left)


def used_seconds(job: GradeJob) -> float:
    """Return what a job counts as, in seconds; attempts that a host lost are not its asker's."""
    if job.state in GradeJob.OPEN:
        return MINUTES[job.tier] * 60.0
    if job.gpu_seconds is not None:
        return job.gpu_seconds
    if job.started_at is None or job.ended_at is None:
        return 0.0
    return (job.ended_at - job.started_at).total_seconds()
