"""Writing and uploading audits."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from grading.auditfile import AuditError
from leaderboard.boards import read_run
from leaderboard.boards.runs import RunView
from leaderboard.models import Run
from leaderboard.review.access import WRITE_AUDIT, desk_view, person_name
from leaderboard.review.audits import store_audit, write_draft
from leaderboard.review.evidence import read_desk
from leaderboard.review.forms import AuditForm, QuoteFormSet, UploadForm

REFUSED = 422


@desk_view(WRITE_AUDIT)
def audit(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Show the form of an audit beside the source; POST stores what was written."""
    view = _read(deck, gpu, run_id)
    posted = request.POST if request.method == "POST" else None
    form = AuditForm(posted, earlier=_earlier(view))
    quotes = _quotes(view, posted)
    if posted is not None and form.is_valid() and quotes.is_valid():
        found = tuple(quote for row in quotes if row.has_changed() and (quote := row.quote()) is not None)
        try:
            run = view.assessment.run
            text = write_draft(run, request.user, form.cleaned_data, found)
            return _store(request, run, text.encode(), f"{run_id}.yaml")
        except AuditError as error:
            form.add_error(None, str(error))
    return _page(request, view, {"form": form, "quotes": quotes, "upload": UploadForm()})


@desk_view(WRITE_AUDIT)
def upload(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Store an uploaded audit file of this run."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    view, form = _read(deck, gpu, run_id), UploadForm(request.POST, request.FILES)
    if form.is_valid():
        file = form.cleaned_data["file"]
        try:
            return _store(request, view.assessment.run, file.read(), file.name)
        except AuditError as error:
            form.add_error("file", str(error))
    forms = {"form": AuditForm(earlier=_earlier(view)), "quotes": _quotes(view, None), "upload": form}
    return _page(request, view, forms)


def _quotes(view: RunView, posted: Any) -> Any:
    paths = [entry.path for entry in view.files]
    return QuoteFormSet(posted, form_kwargs={"files": paths}, prefix="quote")


def _read(deck: str, gpu: str, run_id: str) -> RunView:
    view = read_run(deck, gpu, run_id, timezone.now(), is_staff=True)
    if view is None:
        raise Http404("no such run")
    return view


def _earlier(view: RunView) -> list[tuple[str, str]]:
    """Return the audits that a new one may settle, newest first."""
    return [(row.digest, f"{row.verdict} by {row.auditor or 'nobody named'}, {row.file}") for row, _ in view.audits]


def _store(request: HttpRequest, run: Run, data: bytes, name: str) -> HttpResponse:
    row, is_held = store_audit(run, data, name, request.user, timezone.now())
    word = "was already held; nothing changed" if is_held else "is stored and the run was assessed again"
    messages.success(request, f"The audit ({row.verdict}) {word}.")
    return redirect("review:run", run.deck_id, run.gpu_id, run.run_id)


def _page(request: HttpRequest, view: RunView, forms: dict[str, Any]) -> HttpResponse:
    context = {
        "view": view,
        "run": view.summary,
        "desk": read_desk(view, request.user, timezone.now()),
        "paths": frozenset(entry.path for entry in view.files),
        "author": person_name(request.user),
        **forms,
    }
    return render(request, "review/audit.html", context, status=REFUSED if request.method == "POST" else 200)
