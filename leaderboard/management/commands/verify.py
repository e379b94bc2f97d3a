"""Ask for a grade of our own of a run."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.utils import timezone

from grading.words import counted
from leaderboard import jobs
from leaderboard.management.base import ProoflineCommand, find_run
from leaderboard.models import Gpu, GradeJob
from leaderboard.service import policies
from leaderboard.service.minutes import MINUTES, Account


class Command(ProoflineCommand):
    """``verify DECK/GPU/RUN_ID [--tier T] [--gpu KEY] [--as USERNAME]`` or ``verify --due [--dry-run]``."""

    help = "Queue a run to be graded on an attached GPU, or everything that a policy calls for."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run, and how it is graded."""
        super().add_arguments(parser)
        parser.add_argument("run", nargs="?", metavar="DECK/GPU/RUN_ID")
        parser.add_argument("--tier", choices=list(MINUTES), default="quick")
        parser.add_argument("--gpu", metavar="KEY", help="another GPU than the run's own: proves the answer, no time")
        parser.add_argument("--as", dest="actor", metavar="USERNAME", help="whose minutes of GPU time it takes")
        parser.add_argument("--due", action="store_true", help="what the policies call for now")
        parser.add_argument("--dry-run", action="store_true", help="say what would be queued, and queue nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Queue, or say what would be queued."""
        if bool(options["run"]) == options["due"]:
            raise CommandError("name a run, or give --due, but not both")
        if options["due"]:
            self._due(options)
            return
        run, at = find_run(options["run"]), timezone.now()
        gpu = options["gpu"] or run.gpu_id
        if not Gpu.objects.filter(pk=gpu).exists():
            known = ", ".join(Gpu.objects.values_list("pk", flat=True))
            raise CommandError(f"--gpu is {gpu!r}; accepted are {known}")
        try:
            policies.check_gradable(run)
            if options["dry_run"]:
                self.print_result(options, f"{run} would be queued for {gpu}", {"run": str(run), "gpu": gpu})
                return
            if options["actor"]:
                job, is_new = policies.ask(run, Account(_user(options["actor"])), at, gpu=gpu, tier=options["tier"])
            else:
                job, is_new = jobs.request(run, jobs.Wish(gpu, options["tier"], jobs.Reason.PERSON), at)
        except jobs.JobError as error:
            raise CommandError(str(error)) from error
        word = "queued" if is_new else f"{job.state} already"
        self.print_result(options, f"{job}: {run} on {gpu}, {job.tier}: {word}", _data(job))

    def _due(self, options: dict[str, Any]) -> None:
        at = timezone.now()
        if options["dry_run"]:
            due = [{"run": str(item.run), "reason": item.reason} for item in policies.find_due(at)]
            self.print_result(options, f"{counted(len(due), 'run is', 'runs are')} due", due)
            return
        made = [_data(job) for job in policies.ask_for_due(at)]
        self.print_result(options, f"{counted(len(made), 'job')} queued", made)


def _user(name: str) -> User:
    user = User.objects.filter(username=name, is_active=True).first()
    if user is None:
        raise CommandError(f"--as is {name!r}, which is no active user")
    return user


def _data(job: GradeJob) -> dict[str, Any]:
    return {
        "job": job.pk,
        "run": str(job.run),
        "gpu": job.gpu_id,
        "tier": job.tier,
        "reason": job.reason,
        "state": job.state,
    }
