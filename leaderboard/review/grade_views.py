"""Grades that people ask for, cancel and run again."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from leaderboard import jobs
from leaderboard.models import GradeJob, Run
from leaderboard.review.access import DECIDE, desk_view
from leaderboard.service import policies
from leaderboard.service.minutes import Account


@desk_view(DECIDE)
@require_POST
def verify(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Ask for our own grade of a run; it spends the person's minutes of GPU time."""
    run = Run.objects.select_related("problem").filter(deck=deck, gpu=gpu, run_id=run_id).first()
    if run is None:
        raise Http404("no such run")
    try:
        job, is_new = policies.ask(run, Account(request.user), timezone.now(), tier=request.POST.get("tier", "quick"))  # type: ignore[arg-type]
    except jobs.JobError as error:
        messages.error(request, f"{error}. Nothing was asked for.")
        return redirect("review:run", deck, gpu, run_id)
    messages.success(request, f"Job {job.pk} waits for a {job.gpu_id}." if is_new else f"Job {job.pk} already waits.")
    return redirect("job", job.pk)


@desk_view(DECIDE)
@require_POST
def act_on_job(request: HttpRequest, job: int) -> HttpResponse:
    """Cancel a job that is open, or ask again for one that ended."""
    row = GradeJob.objects.select_related("run", "target").filter(pk=job).first() if job < 2**31 else None
    action = request.POST.get("action", "")
    if row is None or action not in ("cancel", "rerun"):
        raise Http404("no such job or act")
    if action == "cancel":
        if not jobs.cancel(row.pk, request.user, timezone.now()):  # type: ignore[arg-type]
            messages.error(request, f"{row} had ended already.")
        return redirect("job", row.pk)
    try:
        again, _ = policies.ask_again(row, request.user, timezone.now())  # type: ignore[arg-type]
    except jobs.JobError as error:
        messages.error(request, f"{error}.")
        return redirect("job", row.pk)
    return redirect("job", again.pk)
