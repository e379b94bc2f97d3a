"""The desk's forms: they check what a person typed; what may be done is checked by publishing."""

import datetime
import re
from collections.abc import Iterable
from typing import Any

from django import forms

from grading.auditfile import MAX_AUDIT_BYTES, Quote
from grading.auditwriter import CHECKED, VERDICTS, clean_text
from leaderboard.models import ApiToken
from leaderboard.review.actions import WORDS, Options, Seen, StaleError

QUOTES = 6
_LINES = re.compile(r"([0-9]{1,7})(?:\s*[-–,]\s*([0-9]{1,7}))?", re.ASCII)


class SeenField(forms.CharField):
    """The hidden field that says what the form's reader saw."""

    widget = forms.HiddenInput

    def clean(self, value: Any) -> Seen:
        """Return what was seen."""
        try:
            return Seen.parse(str(value or ""))
        except StaleError as error:
            raise forms.ValidationError(str(error)) from error


class ReasonForm(forms.Form):
    """The reason that every act needs."""

    reason = forms.CharField(
        max_length=500, label="Reason", error_messages={"required": "A reason is needed; readers of the log see it."}
    )

    def clean_reason(self) -> str:
        """Return the reason as one line of printable text."""
        return " ".join(clean_text(self.cleaned_data["reason"]).split())


class ActForm(ReasonForm):
    """One act on one run, of what its reader saw."""

    seen = SeenField()
    action = forms.ChoiceField(choices=[(name, name) for name in WORDS])
    acknowledged = forms.BooleanField(required=False)
    code = forms.CharField(required=False, max_length=60)
    batch = forms.CharField(required=False, max_length=200)
    expires = forms.DateField(required=False)
    reuse = forms.BooleanField(required=False)

    def options(self, default_batch: str) -> Options:
        """Return what the act needs beside its reason."""
        return read_options(self.cleaned_data, default_batch)


class BulkForm(ReasonForm):
    """One act on several runs; the runs travel beside it as ``run`` values."""

    action = forms.ChoiceField(choices=[(name, name) for name in WORDS if name != "pin"])
    acknowledged = forms.BooleanField(required=False)
    code = forms.CharField(required=False, max_length=60)
    batch = forms.CharField(required=False, max_length=200)
    expires = forms.DateField(required=False)
    reuse = forms.BooleanField(required=False)

    def options(self, default_batch: str) -> Options:
        """Return what the act needs beside its reason."""
        return read_options(self.cleaned_data, default_batch)


def read_options(cleaned: dict[str, Any], default_batch: str) -> Options:
    """Return the options of a form; a day means its end in UTC."""
    day = cleaned["expires"]
    return Options(
        is_acknowledged=cleaned["acknowledged"],
        code=cleaned["code"],
        batch=clean_text(cleaned["batch"]) or default_batch,
        expires_at=datetime.datetime.combine(day, datetime.time(23, 59, 59), datetime.UTC) if day else None,
        is_reuse=cleaned["reuse"],
    )


class ReleaseForm(ReasonForm):
    """The note of a release, and the digest of the cells that were previewed."""

    digest = forms.CharField(widget=forms.HiddenInput, min_length=64, max_length=64)


class AuditForm(forms.Form):
    """An audit without its quotes."""

    verdict = forms.ChoiceField(choices=[("", "Choose"), *((word, word.replace("_", " ")) for word in VERDICTS)])
    summary = forms.CharField(widget=forms.Textarea(attrs={"rows": 5}), max_length=8_000)
    acknowledge = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        max_length=2_000,
        required=False,
        label="What an approver must acknowledge",
        help_text="Needed with the verdict interesting: what is unusual, and why it may still be published.",
    )
    checked = forms.MultipleChoiceField(
        choices=[(word, word.replace("_", " ")) for word in CHECKED],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        label="What you looked at",
    )
    evidence = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}), max_length=20_000, required=False, label="How you know"
    )
    supersedes = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple,
        required=False,
        label="Settles these earlier audits",
        help_text="They stay on record but no longer block or conflict.",
    )

    def __init__(self, *args: Any, earlier: Iterable[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["supersedes"].choices = list(earlier)  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Return texts that a file can carry; ``interesting`` says what to acknowledge."""
        cleaned = super().clean() or self.cleaned_data
        for name in ("summary", "acknowledge", "evidence"):
            cleaned[name] = clean_text(cleaned.get(name, ""))
        if not cleaned["summary"] and "summary" not in self.errors:
            self.add_error("summary", "This field is required.")
        if cleaned.get("verdict") == "interesting" and not cleaned["acknowledge"]:
            self.add_error("acknowledge", "With interesting, say what an approver must acknowledge.")
        return cleaned


class QuoteForm(forms.Form):
    """One quote; left out where it is empty."""

    file = forms.ChoiceField(required=False)
    lines = forms.CharField(required=False, max_length=20, label="Lines", help_text="12 or 12-20")
    label = forms.CharField(required=False, max_length=200)
    text = forms.CharField(required=False, max_length=4_000, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, files: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["file"].choices = [("", "File"), *((path, path) for path in files)]  # type: ignore[attr-defined]

    def clean_lines(self) -> tuple[int, ...]:
        """Return (first, last), (only,), or nothing."""
        text = self.cleaned_data["lines"].strip()
        if not text:
            return ()
        match = _LINES.fullmatch(text)
        numbers = tuple(int(part) for part in match.groups() if part is not None) if match else ()
        if not numbers or numbers[0] < 1 or numbers[-1] < numbers[0]:
            raise forms.ValidationError(f"lines is {text!r}; need a number, or first-last such as 12-20")
        return numbers

    def clean(self) -> dict[str, Any]:
        """Refuse lines without a file."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("lines") and not cleaned.get("file"):
            self.add_error("file", "Choose the file of these lines.")
        return cleaned

    def quote(self) -> Quote | None:
        """Return the quote, or None for an empty row."""
        texts = {name: clean_text(self.cleaned_data.get(name) or "") or None for name in ("file", "label", "text")}
        lines = self.cleaned_data.get("lines") or ()
        return Quote(lines=lines, **texts) if lines or texts["text"] or texts["label"] else None


QuoteFormSet = forms.formset_factory(QuoteForm, extra=QUOTES, max_num=QUOTES, absolute_max=QUOTES)


class UploadForm(forms.Form):
    """An audit file."""

    file = forms.FileField(label="Audit file (YAML)", allow_empty_file=False)

    def clean_file(self) -> Any:
        """Refuse a file that is longer than any audit."""
        file = self.cleaned_data["file"]
        if file.size > MAX_AUDIT_BYTES:
            raise forms.ValidationError(f"the file has {file.size} bytes; at most {MAX_AUDIT_BYTES} are accepted")
        return file


class TokenForm(forms.Form):
    """A new API token. The scopes offered are those that the person may use."""

    name = forms.CharField(max_length=100, label="What it is for")
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, label="What it may do")
    days = forms.IntegerField(min_value=1, max_value=366, initial=90, label="Days until it expires")

    def __init__(self, *args: Any, scopes: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scopes"].choices = [(name, ApiToken.Scope(name).label.lower()) for name in scopes]  # type: ignore[attr-defined]
