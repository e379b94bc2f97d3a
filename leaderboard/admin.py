"""The admin: everything can be looked at, nothing can be edited past publishing.py."""

import datetime
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date

from grading.words import counted
from leaderboard import publishing, selection
from leaderboard.models import (
    Assessment,
    Audit,
    Decision,
    Deck,
    Entrant,
    Finding,
    Gpu,
    LanguageModel,
    Problem,
    Publication,
    Rejection,
    Release,
    Run,
    Waiver,
)


class ReadOnlyAdmin(admin.ModelAdmin):
    """A list and a detail page; no form writes."""

    exclude: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: rows come from ingest, recompute and publishing only."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse."""
        return False


class DecisionForm(ActionForm):
    """What a decision on selected runs needs beside the runs."""

    reason = forms.CharField(required=False, max_length=500, label="Reason")
    code = forms.CharField(required=False, max_length=60, label="Finding code (waive)")
    expires = forms.DateField(required=False, label="Expires (waive)")


class RunAdmin(ReadOnlyAdmin):
    """Runs, with the decisions an approver may make on them."""

    list_display = ("run_id", "deck", "gpu", "problem", "entrant", "reported_text", "standing")
    list_filter = ("deck", "gpu", "assessment__standing", "publication__state")
    search_fields = ("run_id",)
    list_select_related = ("assessment", "problem", "entrant")
    exclude = ("record",)
    actions = ("approve", "reject", "withdraw", "waive")
    action_form = DecisionForm

    @admin.display(ordering="assessment__standing")
    def standing(self, run: Run) -> str:
        """The run's standing and what blocks it."""
        assessment: Assessment | None = getattr(run, "assessment", None)
        return f"{assessment.standing} {' '.join(assessment.blockers)}" if assessment else "not assessed"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Offer the decisions to those who may make them."""
        actions = super().get_actions(request)
        return actions if request.user.has_perm("leaderboard.decide") else {}

    @admin.action(description="Approve the selected runs")
    def approve(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Approve every selected run that allows it."""
        self._decide(request, runs, publishing.approve)

    @admin.action(description="Reject the selected runs")
    def reject(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Reject every selected run that allows it."""
        self._decide(request, runs, publishing.reject)

    @admin.action(description="Withdraw the selected runs")
    def withdraw(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Withdraw every selected run that allows it."""
        self._decide(request, runs, publishing.withdraw)

    @admin.action(description="Waive a finding code on the selected runs")
    def waive(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Except the code of the form on all selected runs, until the form's date."""
        day = parse_date(request.POST.get("expires", ""))
        expires_at = datetime.datetime.combine(day, datetime.time(23, 59, 59), datetime.UTC) if day else None
        try:
            act = self._act(request)
            waiver = publishing.waive(
                request.POST.get("code", ""), list(runs), act, batch="selected in the admin", expires_at=expires_at
            )
        except publishing.PublishingError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        self.message_user(request, f"{waiver.code} waived on {counted(waiver.runs.count(), 'run')}")

    def _decide(self, request: HttpRequest, runs: QuerySet[Run], decide: Callable[[Run, publishing.Act], Any]) -> None:
        try:
            act = self._act(request)
        except publishing.PublishingError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        for run in runs.select_related("problem", "entrant", "assessment", "publication"):
            try:
                decision = decide(run, act)
                self.message_user(request, f"{run}: {decision.kind} (decision {decision.sequence})")
            except publishing.PublishingError as error:
                self.message_user(request, str(error), messages.ERROR)

    def _act(self, request: HttpRequest) -> publishing.Act:
        return publishing.Act(request.user, request.POST.get("reason", ""), timezone.now())


class ReleaseAdmin(ReadOnlyAdmin):
    """Releases; adding one takes the snapshot."""

    list_display = ("number", "created_at", "actor", "note", "digest")
    fields = ("note",)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow whoever may decide."""
        return request.user.has_perm("leaderboard.decide")

    def save_form(self, request: HttpRequest, form: forms.ModelForm, change: bool) -> Release:
        """Take the snapshot in place of saving the form's object; the form shows what refuses it."""
        form.save_m2m = lambda: None
        return publishing.release(publishing.Act(request.user, form.cleaned_data["note"], timezone.now()))

    def save_model(self, request: HttpRequest, obj: Release, form: forms.ModelForm, change: bool) -> None:
        """Do nothing: the release was saved as a whole."""

    def get_form(self, request: HttpRequest, obj: Release | None = None, **kwargs: Any) -> type[forms.ModelForm]:
        """Return the form, which refuses a release that would change nothing."""
        form = super().get_form(request, obj, **kwargs)

        class ReleaseForm(form):  # type: ignore[misc, valid-type]
            def clean(self) -> dict[str, Any]:
                cleaned = super().clean() or self.cleaned_data
                latest = Release.objects.first()
                if latest is not None and latest.digest == selection.digest_of(selection.choose_cells(timezone.now())):
                    raise ValidationError(f"nothing changed since release {latest.number}")
                return cleaned

        return ReleaseForm


class AuditAdmin(ReadOnlyAdmin):
    """Audits as received."""

    list_display = ("file", "deck", "named_run", "verdict", "status", "auditor", "run")
    list_filter = ("deck", "verdict", "status")
    search_fields = ("named_run", "file")
    exclude = ("content",)


class FindingAdmin(ReadOnlyAdmin):
    """Findings of all runs."""

    list_display = ("run", "code", "severity", "message")
    list_filter = ("severity", "code")
    search_fields = ("run__run_id", "message")


class DecisionAdmin(ReadOnlyAdmin):
    """The log of decisions."""

    list_display = ("sequence", "at", "kind", "run", "actor", "reason")
    list_filter = ("kind",)


class RejectionAdmin(ReadOnlyAdmin):
    """What could not become a row."""

    list_display = ("path", "is_conflict", "reason", "received_at")
    list_filter = ("is_conflict",)


admin.site.site_header = admin.site.site_title = "Proofline"
admin.site.register(Run, RunAdmin)
admin.site.register(Audit, AuditAdmin)
admin.site.register(Finding, FindingAdmin)
admin.site.register(Decision, DecisionAdmin)
admin.site.register(Rejection, RejectionAdmin)
admin.site.register(Release, ReleaseAdmin)
admin.site.register([Deck, Problem, Gpu, LanguageModel, Entrant, Publication, Waiver], ReadOnlyAdmin)
