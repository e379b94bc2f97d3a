"""Grades: asking for one of a run, taking that back, and how far it is. `jobs.py` decides, this only translates.

Readers see what the job's page shows them. A token with the scope `verify` whose owner is of the staff sees what the
staff see. Answers change without a decision, so none is made before the route and their validator is a digest.
"""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from leaderboard import boards, jobs, representation, tokens
from leaderboard.api import params
from leaderboard.api.answers import answer, asking, reading
from leaderboard.api.job_schemas import Job, JobList
from leaderboard.api.writing import TokenScope
from leaderboard.boards.grading import read_job, read_jobs
from leaderboard.errors import ApiProblem, answer_problem
from leaderboard.models import ApiToken, Run
from leaderboard.service import minutes, policies
from leaderboard.service.minutes import Account

LIVE = frozenset({"list_verifications", "get_job"})
router = Router()


class AskQuery(params.Query):
    """Parameters of a wish."""

    tier: params.Tier = Field("quick", description="how thorough")
    gpu: params.Gpu | None = Field(
        None, description="key of another GPU than the run's own: proves the answer, and no time"
    )


@router.post(
    "/runs/{deck}/{gpu}/{run_id}/verifications",
    summary="Ask for a grade",
    operation_id="ask_for_verification",
    auth=TokenScope(ApiToken.Scope.VERIFY),
    response=asking(200, 202, schema=Job),
)
def ask_for_verification(
    request: HttpRequest, deck: str, gpu: str, run_id: str, query: Query[AskQuery]
) -> HttpResponse:
    """Queue a grade of our own of a run (202), or return the job of the same one that is open already (200)."""
    token: ApiToken = request.api_token  # type: ignore[attr-defined]
    at = request.moment  # type: ignore[attr-defined]
    run = _find_run((deck, gpu, run_id), request)
    tokens.mark_used(token, at)
    account = Account(token.owner, token)
    try:
        job, is_new = policies.ask(run, account, at, gpu=query.gpu, tier=query.tier)
    except policies.TooMuch as error:
        response = answer_problem(ApiProblem("rate_limited", str(error)))
        error.allowance.write_headers(response)
        return response
    except jobs.JobError as error:
        raise ApiProblem("not_gradable", str(error)) from error
    response = _answer_job(request, job.pk, 202 if is_new else 200)
    allowance = minutes.read(account, at)
    if allowance is not None:
        allowance.write_headers(response)
    return response


@router.get(
    "/runs/{deck}/{gpu}/{run_id}/verifications",
    summary="Grades of a run",
    operation_id="list_verifications",
    response=reading(JobList),
)
def list_verifications(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Return every grade that was asked for of a run, newest first: the waiting, the running and the ended ones."""
    key = (deck, gpu, run_id)
    at = request.moment  # type: ignore[attr-defined]
    found = read_jobs(key, at, is_staff=_is_staff(request)) if _is_plain(key) else None
    if found is None:
        raise _unknown_run()
    return answer({"count": len(found), "results": [representation.job_data(page) for page in found]}, len(found))


@router.get("/jobs/{job}", summary="One grade", operation_id="get_job", response=reading(Job))
def get_job(request: HttpRequest, job: params.Number) -> HttpResponse:
    """Return how far a grade is, and what came of it."""
    return _answer_job(request, job)


@router.post(
    "/jobs/{job}/cancel",
    summary="Take a wish back",
    operation_id="cancel_job",
    auth=TokenScope(ApiToken.Scope.VERIFY),
    response=asking(200, schema=Job),
)
def cancel_job(request: HttpRequest, job: params.Number) -> HttpResponse:
    """Cancel a grade that waits, for the person who asked for it. One that has begun goes on to its verdict."""
    token: ApiToken = request.api_token  # type: ignore[attr-defined]
    at = request.moment  # type: ignore[attr-defined]
    page = read_job(job, at, is_staff=_is_staff(request))
    if page is None:
        raise _unknown_job()
    if page.view.job.requested_by_id != token.owner_id:
        raise ApiProblem("not_yours", "only who asked for a grade takes it back; an approver cancels it at the desk")
    tokens.mark_used(token, at)
    if not jobs.take_back(job, token.owner, at):
        raise ApiProblem(
            "not_waiting", f"job {job} does not wait any more; a grade that has begun goes on to its verdict"
        )
    return _answer_job(request, job)


def _is_staff(request: HttpRequest) -> bool:
    """Tell whether the token that a request presents sees what only the staff may see."""
    token: ApiToken | None = request.api_token  # type: ignore[attr-defined]
    return token is not None and ApiToken.Scope.VERIFY in token.scopes and token.owner.is_staff


def _is_plain(key: tuple[str, str, str]) -> bool:
    return all(text.isprintable() for text in key)


def _find_run(key: tuple[str, str, str], request: HttpRequest) -> Run:
    """Return a run that the request's token may know of. Raises ApiProblem, the same for one that does not exist."""
    at = request.moment  # type: ignore[attr-defined]
    known = boards.visible_runs(at, is_staff=_is_staff(request)).select_related("problem").defer("record")
    run = known.filter(deck=key[0], gpu=key[1], run_id=key[2]).first() if _is_plain(key) else None
    if run is None:
        raise _unknown_run()
    return run


def _answer_job(request: HttpRequest, job: int, status: int = 200) -> HttpResponse:
    at = request.moment  # type: ignore[attr-defined]
    page = read_job(job, at, is_staff=_is_staff(request))
    if page is None:
        raise _unknown_job()
    data = representation.job_data(page)
    response = answer(data)
    response.status_code = status
    if request.method == "POST":
        response["Location"] = data["links"]["api_job"]
    return response


def _unknown_run() -> ApiProblem:
    return ApiProblem("unknown_run", "there is no such run, or it is not public")


def _unknown_job() -> ApiProblem:
    return ApiProblem("unknown_job", "there is no such grade, or it is not public")
