"""Who asks for grades: persons within their allowance, and policies for results that matter.

A policy looks only at GPU keys that some host offers, and asks at most once for the same run, source and version of the
problem, unless its time came round again. So a site without hosts never queues anything by itself.
"""

import datetime
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, InterfaceError, close_old_connections, transaction
from django.db.models import Exists, Max, OuterRef, QuerySet
from django.utils import timezone

from grading.problem import DECKS, load_decks
from leaderboard import jobs, selection
from leaderboard.limits import Allowance
from leaderboard.models import (
    Assessment,
    Gpu,
    GradeJob,
    HostGpu,
    HostState,
    Release,
    ReleasedCell,
    Revision,
    Run,
    Verification,
)
from leaderboard.service import minutes
from leaderboard.service.minutes import MINUTES, Account

log = logging.getLogger(__name__)
_Reason = jobs.Reason
_PAUSE = datetime.timedelta(days=1)
_CHUNK = 500
_LOOK_SECONDS, _PATIENCE_SECONDS = 20.0, 3600.0


class TooMuch(jobs.JobError):
    """A person or token whose minutes of GPU time are used up; the allowance says when there are enough again."""

    def __init__(self, message: str, allowance: Allowance) -> None:
        super().__init__(message)
        self.allowance = allowance


@dataclass(frozen=True, slots=True)
class Due:
    """A run that should be graded, and the policy that says so."""

    run: Run
    reason: str


def ask(
    run: Run,
    account: Account,
    at: datetime.datetime,
    *,
    gpu: str | None = None,
    tier: str = "quick",
) -> tuple[GradeJob, bool]:
    """Ask for a grade on behalf of a person; return the job, and whether it is new.

    gpu  another GPU key than the run's own: it proves the answer, and no time
    Raises JobError for what cannot be graded, and TooMuch where a new job would take more minutes than are left.
    """
    check_gradable(run)
    if tier not in MINUTES:
        raise jobs.JobError(f"tier is {tier[:20]!r}; accepted are {', '.join(MINUTES)}")
    if gpu is not None and not Gpu.objects.filter(pk=gpu).exists():
        known = ", ".join(Gpu.objects.values_list("pk", flat=True))
        raise jobs.JobError(f"GPU key is {gpu[:40]!r}; accepted are {known}")
    wish = jobs.Wish(gpu or run.gpu_id, tier, _Reason.PERSON, account.owner, account.token)
    with _spending(account):
        if jobs.find_open(run, wish) is None:
            check_minutes(account, tier, at)
        return jobs.request(run, wish, at)


def ask_again(job: GradeJob, by: User, at: datetime.datetime) -> tuple[GradeJob, bool]:
    """Ask for the same grade again; return the job, and whether it is new. Raises JobError, and TooMuch as `ask`."""
    account = Account(by)
    with _spending(account):
        if job.run_id is not None and job.state not in jobs.OPEN:
            check_minutes(account, job.tier, at)
        return jobs.rerun(job, by, at)


@contextmanager
def _spending(account: Account) -> Iterator[None]:
    """Let one wish of a person at a time look at the minutes and use them."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=account.owner.pk)
        yield


def check_minutes(account: Account, tier: str, at: datetime.datetime) -> None:
    """Raise TooMuch where an account has no minutes left for a grade."""
    allowance = minutes.read(account, at, MINUTES[tier])
    if allowance is not None and allowance.is_exceeded:
        raise TooMuch(
            f"{account.owner} has {allowance.remaining} of {allowance.bucket.quota} minutes of GPU time left; a {tier} "
            f"grade counts as {MINUTES[tier]}; again in {allowance.reset_seconds} seconds",
            allowance,
        )


def check_gradable(run: Run) -> None:
    """Raise JobError where a run's problem has no reference, or the run no source."""
    problem = load_decks()[run.deck_id].problems[run.problem.slug]
    if not (DECKS / problem.deck / problem.id / "reference.py").exists():
        raise jobs.JobError(f"{problem.key} has no reference; it cannot be graded")
    if run.solution_digest is None:
        raise jobs.JobError(f"{run} holds no solution; it cannot be graded")


def follow(stopping: Event) -> None:
    """Ask for what is due until told to stop: when runs, releases or hosts changed, and every hour.

    It has a thread of its own, since looking through all runs takes longer than a wake-up may wait.
    """
    seen: object = None
    asked_at = 0.0
    while not stopping.wait(_LOOK_SECONDS):
        try:
            now = (
                Revision.objects.values_list("number", flat=True).first(),
                Release.objects.values_list("number", flat=True).first(),
                HostGpu.objects.exclude(state=HostState.RETIRED).count(),
            )
            if now != seen or monotonic() - asked_at > _PATIENCE_SECONDS:
                ask_for_due(timezone.now())
                seen, asked_at = now, monotonic()
        except (DatabaseError, InterfaceError):
            log.exception("the policies wait for the database")
            close_old_connections()


def ask_for_due(at: datetime.datetime) -> list[GradeJob]:
    """Ask for every grade that a policy calls for; return the new jobs."""
    made = []
    for due in find_due(at):
        tier = jobs.Tier.QUICK if due.reason == _Reason.RANDOM else jobs.Tier.FULL
        job, is_new = jobs.request(due.run, jobs.Wish(due.run.gpu_id, tier, due.reason), at)
        if is_new:
            made.append(job)
    return made


def find_due(at: datetime.datetime) -> list[Due]:
    """Return the runs that a policy wants graded now, each once, by the first policy that names it."""
    offered = set(HostGpu.objects.exclude(state=HostState.RETIRED).values_list("gpu", flat=True))
    if not offered:
        return []
    found: dict[int, Due] = {}
    for name in settings.VERIFY_POLICIES:
        for run in _POLICIES[name](offered, at):
            found.setdefault(run.pk, Due(run, name))
    return [due for due in found.values() if _is_gradable(due.run)]


def _is_gradable(run: Run) -> bool:
    try:
        check_gradable(run)
    except jobs.JobError:
        return False
    return True


def _published(offered: set[str]) -> list[Run]:
    """Return the runs that the latest release publishes on GPU keys that are offered."""
    latest = Release.objects.first()
    if latest is None:
        return []
    cells = ReleasedCell.objects.filter(release=latest, status=ReleasedCell.Status.PUBLISHED, gpu__in=offered)
    return list(_runs().filter(pk__in=cells.values("run")))


def _runs() -> QuerySet[Run]:
    related = ("problem", "entrant", "assessment", "publication")
    return Run.objects.select_related(*related).defer("record", "assessment__shapes", "assessment__evidence")


def _asked() -> QuerySet[GradeJob]:
    """Return the jobs that count as asked for. A person's wish that was cancelled is none, or it would exempt a run."""
    return GradeJob.objects.exclude(state=jobs.State.CANCELLED, requested_by__isnull=False)


def _without_job(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield the runs that nothing was ever asked for."""
    rows = list(runs)
    known = set(_asked().filter(run__in=rows).values_list("run", flat=True))
    yield from (run for run in rows if run.pk not in known)


def _by_release(offered: set[str], at: datetime.datetime) -> Iterator[Run]:
    """Every published cell."""
    return _without_job(_published(offered))


def _by_new_best(offered: set[str], at: datetime.datetime) -> Iterator[Run]:
    """The best run of each board and problem that may be published."""
    eligible = Assessment.objects.eligible(at).filter(run__gpu__in=offered).values("run")
    best: dict[tuple[str, str, int], tuple[tuple[object, ...], Run]] = {}
    for run in _runs().filter(pk__in=eligible):
        key, rank = (run.deck_id, run.gpu_id, run.problem_id), selection.preference(run)
        if key not in best or rank < best[key][0]:
            best[key] = (rank, run)
    return _without_job(run for _, run in best.values())


def _by_chance(offered: set[str], at: datetime.datetime) -> Iterator[Run]:
    """A share of all correct runs, by their content's digest: nobody can choose, and everybody can check."""
    rows = Run.objects.filter(~Exists(_asked().filter(run=OuterRef("pk"))), gpu__in=offered, is_correct=True)
    rows = rows.exclude(solution_digest=None)
    picked = [pk for pk, digest in rows.values_list("pk", "content_digest").iterator() if is_picked(digest)]
    for start in range(0, len(picked), _CHUNK):
        yield from _runs().filter(pk__in=picked[start : start + _CHUNK])


def is_picked(content_digest: str) -> bool:
    """Tell whether the policy `random` picks a run."""
    return int(content_digest[:8], 16) % 100 < settings.VERIFY_RANDOM_PERCENT


def _by_age(offered: set[str], at: datetime.datetime) -> Iterator[Run]:
    """Every published cell that was asked for too long ago, or whose last grade is about another version."""
    oldest = at - datetime.timedelta(days=settings.VERIFY_AGAIN_DAYS)
    runs = _published(offered)
    asked = dict(_asked().filter(run__in=runs).values_list("run").annotate(last=Max("requested_at")))
    versions = dict(Verification.objects.filter(run__in=runs).order_by("pk").values_list("run", "problem_version"))
    for run in runs:
        version = load_decks()[run.deck_id].problems[run.problem.slug].version
        since = oldest if versions.get(run.pk, version) == version else at - _PAUSE
        if run.pk in asked and asked[run.pk] < since:
            yield run


_POLICIES = {
    str(_Reason.RELEASE): _by_release,
    str(_Reason.NEW_BEST): _by_new_best,
    str(_Reason.RANDOM): _by_chance,
    str(_Reason.REVERIFY): _by_age,
}
