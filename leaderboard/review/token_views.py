"""A person's own API tokens: list, make, revoke."""

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from leaderboard import tokens
from leaderboard.models import ApiToken
from leaderboard.review.access import DECIDE, INGEST, WRITE_AUDIT, desk_view
from leaderboard.review.forms import TokenForm

_NEEDS = {ApiToken.Scope.INGEST: INGEST, ApiToken.Scope.AUDIT: WRITE_AUDIT, ApiToken.Scope.VERIFY: DECIDE}


def scopes_of(user: User) -> list[str]:
    """Return the scopes that a person may give to a token: never more than the person may do."""
    return [str(scope) for scope in ApiToken.Scope if scope not in _NEEDS or user.has_perm(_NEEDS[scope])]


@desk_view()
def token_list(request: HttpRequest) -> HttpResponse:
    """List the person's tokens; POST makes one and shows its text this once."""
    form = TokenForm(request.POST if request.method == "POST" else None, scopes=scopes_of(request.user))
    text = _make(request, form) if request.method == "POST" and form.is_valid() else None
    now = timezone.now()
    rows = [(row, row.is_active(now)) for row in ApiToken.objects.filter(owner=request.user)]
    status = 422 if request.method == "POST" and text is None else 200
    return render(request, "review/tokens.html", {"form": form, "text": text, "tokens": rows}, status=status)


def _make(request: HttpRequest, form: TokenForm) -> str | None:
    fields, now = form.cleaned_data, timezone.now()
    held = ApiToken.objects.filter(owner=request.user, name=fields["name"].strip(), revoked_at=None, expires_at__gt=now)
    if held.exists():
        form.add_error("name", "you have an active token of this name; revoke it first, or choose another name")
        return None
    try:
        _, text = tokens.make_token(request.user, fields["name"], fields["scopes"], now, days=fields["days"])
    except tokens.TokenError as error:
        form.add_error(None, str(error))
        return None
    return text


@desk_view()
@require_POST
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Revoke one of the person's own tokens."""
    token = ApiToken.objects.filter(owner=request.user, key=key).first()
    if token is None:
        raise Http404("no such token")
    tokens.revoke(token, timezone.now())
    messages.success(request, f"The token {token} is revoked.")
    return redirect("review:tokens")
