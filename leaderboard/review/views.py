"""The queue, the screen of one run, bulk acts and releases."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from grading.words import counted
from leaderboard.boards import read_run
from leaderboard.boards.arithmetic import read_arithmetic
from leaderboard.boards.runs import RunView
from leaderboard.boards.timeline import read_timeline
from leaderboard.charts import shape_chart
from leaderboard.models import Deck, Gpu
from leaderboard.pages.query import text_filters
from leaderboard.publishing import Act, PublishingError
from leaderboard.review import actions
from leaderboard.review.access import DECIDE, WRITE_AUDIT, desk_view
from leaderboard.review.actions import MAX_BULK, TRIAL, WORDS, Bulk, Options, Seen, StaleError
from leaderboard.review.evidence import own_decisions, read_desk
from leaderboard.review.forms import ActForm, BulkForm, ReleaseForm
from leaderboard.review.queue import TABS, Entry, read_page, read_queue, read_runs

FILTERS = ("deck", "gpu", "q")
STALE, REFUSED = 409, 422


@dataclass(frozen=True, slots=True)
class Failure:
    """An act that was not carried out: what to say, and what the person had typed."""

    action: str
    message: str
    reason: str
    status: int


@desk_view()
@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """Show what waits, what matters most first."""
    filters, now = text_filters(request, FILTERS), timezone.now()
    tab = request.GET.get("tab", "decide")
    number = request.GET.get("page", "1")
    is_known = tab in TABS and number.isascii() and number.isdigit() and 1 <= int(number[:6]) == int(number)
    if not is_known:
        raise Http404("no such tab or page")
    context = {
        "page": read_page(tab, filters, int(number), now),
        "filters": filters,
        "decks": Deck.objects.order_by("slug").values_list("slug", flat=True),
        "gpus": Gpu.objects.order_by("key").values_list("key", flat=True),
        "may_decide": request.user.has_perm(DECIDE),
    }
    return render(request, "review/queue.html", context)


@desk_view()
def run(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Show one run with everything that a decision rests on; POST decides."""
    if request.method == "POST":
        return _decide(request, deck, gpu, run_id)
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD, POST"})
    return _screen(request, _read(deck, gpu, run_id), None)


def _read(deck: str, gpu: str, run_id: str) -> RunView:
    view = read_run(deck, gpu, run_id, timezone.now(), is_staff=True)
    if view is None:
        raise Http404("no such run")
    return view


def _screen(request: HttpRequest, view: RunView, failure: Failure | None) -> HttpResponse:
    now, tab = timezone.now(), _tab(request)
    desk, waiting = read_desk(view, request.user, now), read_queue(now)
    before, after, position = waiting.neighbours(tab, desk.run.pk)
    arithmetic = read_arithmetic(view)
    context = {
        "view": view,
        "run": view.summary,
        "desk": desk,
        "arithmetic": arithmetic,
        "chart": shape_chart(arithmetic),
        "timeline": read_timeline(view),
        "decisions": own_decisions(view.decisions),
        "place": waiting.places.get(desk.run.pk),
        "paths": frozenset(entry.path for entry in view.files),
        "queue": {"tab": tab, "before": before, "after": after, "position": position, "of": len(waiting.tabs[tab])},
        "may_decide": request.user.has_perm(DECIDE),
        "may_audit": request.user.has_perm(WRITE_AUDIT),
        "failure": failure,
    }
    return render(request, "review/run.html", context, status=failure.status if failure else 200)


def _tab(request: HttpRequest) -> str:
    tab = request.POST.get("tab", "") or request.GET.get("tab", "")
    return tab if tab in ("decide", "pending") else "decide"


def _decide(request: HttpRequest, deck: str, gpu: str, run_id: str) -> HttpResponse:
    """Carry out one act, then go on to the next run; what is refused changes nothing and says why."""
    if not request.user.has_perm(DECIDE):
        raise PermissionDenied("this needs the role approver")
    view, form = _read(deck, gpu, run_id), ActForm(request.POST)
    action, typed = request.POST.get("action", ""), request.POST.get("reason", "")
    if not form.is_valid():
        text = " ".join(str(error) for errors in form.errors.values() for error in errors)
        return _screen(request, view, Failure(action, text, typed, REFUSED))
    following = _following(request, view)
    cleaned = form.cleaned_data
    act = Act(request.user, cleaned["reason"], timezone.now())
    options = form.options(f"review of {view.summary.run_id}")
    try:
        done = actions.decide(action, view.assessment.pk, act, cleaned["seen"], options)
    except StaleError as error:
        message = f"{error}. Nothing was done; below is the run as it is now."
        return _screen(request, _read(deck, gpu, run_id), Failure(action, message, typed, STALE))
    except PublishingError as error:
        return _screen(request, view, Failure(action, f"{error}. Nothing was done.", typed, REFUSED))
    again = " It was sent twice and counted once." if done.is_repeated else ""
    messages.success(request, f"{run_id}: {WORDS[action]}, decision {done.decision.sequence}.{again}")
    return HttpResponseRedirect(following)


def _following(request: HttpRequest, view: RunView) -> str:
    """Return where to go after a decision: the next run of the tab, or the queue where nothing waits."""
    tab = _tab(request)
    before, after, _ = read_queue(timezone.now()).neighbours(tab, view.assessment.pk)
    chosen = after or before
    if request.POST.get("action") in ("waive", "pin", "withdraw"):
        run = view.summary
        return f"{reverse('review:run', args=(run.deck, run.gpu, run.run_id))}?tab={tab}"
    return f"{_address(chosen)}?tab={tab}" if chosen else f"{reverse('review:queue')}?tab={tab}"


def _address(entry: Entry) -> str:
    return reverse("review:run", args=(entry.deck, entry.gpu, entry.run_id))


@desk_view(DECIDE)
@require_POST
def bulk(request: HttpRequest) -> HttpResponse:
    """Preview an act on the selected runs, or carry out what was previewed."""
    action = request.POST.get("action", "")
    if action not in WORDS or action == "pin":
        raise Http404("no such act")
    keys = [int(text) for text in request.POST.getlist("run") if text.isascii() and text.isdigit() and len(text) < 18]
    runs = read_runs(dict.fromkeys(keys[: MAX_BULK + 1]))
    if not runs or len(runs) > MAX_BULK:
        messages.error(request, f"Select 1 to {MAX_BULK} runs; {len(runs) or 'none'} came.")
        return redirect("review:queue")
    if request.POST.get("step") == "confirm":
        return _confirm(request, action)
    return _preview(request, action, runs, None)


def _preview(request: HttpRequest, action: str, runs: list[Any], form: BulkForm | None) -> HttpResponse:
    codes = sorted({code for run in runs for code in run.assessment.blockers})
    code = request.POST.get("code", "") or (codes[0] if len(codes) == 1 else "")
    trial = Act(request.user, TRIAL, timezone.now())
    is_chosen = action != "waive" or bool(code)
    options = Options(is_acknowledged=True, code=code, batch="preview")
    done = actions.preview_bulk(action, runs, trial, options) if is_chosen else None
    context = {"bulk": done, "action": action, "codes": codes, "code": code, "runs": runs, "form": form}
    return render(request, "review/bulk.html", context, status=REFUSED if form is not None else 200)


def _confirm(request: HttpRequest, action: str) -> HttpResponse:
    form = BulkForm(request.POST)
    seen = _seen_by_run(request)
    runs = read_runs(seen)
    if not form.is_valid():
        return _preview(request, action, runs, form)
    act = Act(request.user, form.cleaned_data["reason"], timezone.now())
    options = form.options(f"{counted(len(runs), 'run')} at the review desk")
    done: Bulk = actions.confirm_bulk(action, seen, act, options)
    return render(request, "review/bulk_done.html", {"bulk": done, "action": action, "word": WORDS[action]})


def _seen_by_run(request: HttpRequest) -> dict[int, Seen]:
    """Return what the preview showed of each run; a run without it is left out."""
    found: dict[int, Seen] = {}
    for text in request.POST.getlist("run"):
        try:
            found[int(text)] = Seen.parse(request.POST.get(f"seen-{text}", ""))
        except (ValueError, StaleError):
            continue
    return found


@desk_view()
def release(request: HttpRequest) -> HttpResponse:
    """Show what the next release would change; POST takes it."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD, POST"})
    if request.method == "POST":
        return _publish(request)
    return _release_page(request, ReleaseForm(), 200)


def _release_page(request: HttpRequest, form: ReleaseForm, status: int) -> HttpResponse:
    preview = actions.preview_release(timezone.now())
    context = {"preview": preview, "form": form, "may_decide": request.user.has_perm(DECIDE)}
    return render(request, "review/release.html", context, status=status)


def _publish(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm(DECIDE):
        raise PermissionDenied("this needs the role approver")
    form = ReleaseForm(request.POST)
    if not form.is_valid():
        return _release_page(request, form, REFUSED)
    act = Act(request.user, form.cleaned_data["reason"], timezone.now())
    try:
        made, is_repeated = actions.publish(act, form.cleaned_data["digest"])
    except PublishingError as error:
        form.add_error(None, f"{error}. Nothing was done.")
        return _release_page(request, form, STALE)
    again = " It was sent twice and counted once." if is_repeated else ""
    messages.success(request, f"Release {made.number} is public, decision {made.decision.sequence}.{again}")
    return redirect("review:release")
