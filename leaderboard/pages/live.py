"""Pages that change by themselves, without a decision: their validator is a digest of what they say."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from leaderboard.boards.gpus import list_gpus, read_gpu
from leaderboard.boards.grading import JobPage, evidence_of, read_grading, read_job
from leaderboard.conditional import answer_digest
from leaderboard.errors import ApiProblem, answer_problem, handle_outage
from leaderboard.pages.query import is_staff
from leaderboard.review.access import DECIDE

View = Callable[..., HttpResponse]


def live(view: View) -> View:
    """Wrap a page that no memory may hold: GET and HEAD only, asked for anew every time."""

    @require_safe
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        answer = view(request, *args, **kwargs)
        return answer_digest(request, answer) if answer.status_code == 200 else answer

    return respond  # type: ignore[return-value]


def live_data(view: View) -> View:
    """Wrap the data of such a page: any origin may read it, and what is missing is told as a problem document."""

    @live
    def read(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.moment = timezone.now()  # type: ignore[attr-defined]
        try:
            return view(request, *args, **kwargs)
        except Http404 as missing:
            return answer_problem(ApiProblem("not_found", str(missing)))
        except (OperationalError, InterfaceError) as error:
            return handle_outage(request, error)

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer = read(request, *args, **kwargs)
        answer["Access-Control-Allow-Origin"] = "*"
        return answer

    return respond


@live
def gpu_list(request: HttpRequest) -> HttpResponse:
    """List the GPUs, the hosts that grade on them, and what waits."""
    now = timezone.now()
    context = {"gpus": list_gpus(now), "grading": read_grading(now, is_staff=is_staff(request))}
    return render(request, "gpus.html", context)


@live
def gpu(request: HttpRequest, key: str) -> HttpResponse:
    """Show one GPU's peak tables, boards and hosts."""
    now = timezone.now()
    found = read_gpu(key, now)
    if found is None:
        raise Http404("no such GPU")
    grading = read_grading(now, found.gpu.key, is_staff=is_staff(request))
    return render(request, "gpu.html", {"view": found, "gpu": found.gpu, "grading": grading})


@live
def job(request: HttpRequest, job: int) -> HttpResponse:
    """Show one grade: how far it is, what happened to it, and what came of it."""
    page = _find(request, job)
    context = {"page": page, "job": page.view.job, "may_decide": request.user.has_perm(DECIDE)}
    return render(request, "job.html", context)


@live
def job_evidence(request: HttpRequest, job: int) -> HttpResponse:
    """Return the archive that a grade left; its logs hold times, so only where the run's score may be read."""
    page = _find(request, job)
    grade = page.view.verification or page.view.calibration
    content = evidence_of(grade.evidence_digest) if grade is not None and page.shows_numbers else None
    if content is None:
        raise Http404("no evidence, or it is not public")
    answer = HttpResponse(content, content_type="application/gzip")
    answer["Content-Disposition"] = f'attachment; filename="job-{page.view.job.pk}.tar.gz"'
    return answer


def _find(request: HttpRequest, job: int) -> JobPage:
    page = read_job(job, timezone.now(), is_staff=is_staff(request)) if job < 2**31 else None
    if page is None:
        raise Http404("no such job, or it is not public")
    return page
