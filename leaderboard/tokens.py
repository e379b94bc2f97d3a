"""API tokens: made once, kept as a digest, and refused with one answer whatever is wrong with them."""

import datetime
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from django.contrib.auth.models import User
from django.http import HttpRequest

from leaderboard.models import ApiToken

PREFIX = "pl_"
MAX_DAYS = 366
_MAX_LENGTH = 200
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


class TokenError(ValueError):
    """A token that cannot be made; the message is safe to show to users."""


def make_token(
    owner: User,
    name: str,
    scopes: Iterable[str],
    at: datetime.datetime,
    *,
    days: int,
    **limits: int | None,
) -> tuple[ApiToken, str]:
    """Make a token and return it with its text, which nothing can show again.

    limits  its own `uploads_per_hour` and `verification_minutes`; None = the settings'
    Raises TokenError for an unknown scope, no scope, an empty name, a life outside 1 to 366 days, a limit below 0.
    """
    chosen = sorted(set(scopes))
    unknown = set(chosen) - set(ApiToken.Scope.values)
    if unknown or not chosen:
        raise TokenError(f"scopes are {', '.join(chosen) or 'none'}; accepted are {', '.join(ApiToken.Scope.values)}")
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise TokenError("name is empty, too long or not printable; need what the token is for, in 100 characters")
    if not 1 <= days <= MAX_DAYS:
        raise TokenError(f"days is {days}; need 1 to {MAX_DAYS}")
    for limit, value in limits.items():
        if value is not None and value < 0:
            raise TokenError(f"{limit} is {value}; need 0 (no limit) or more")
    key = secrets.token_hex(4)
    text = f"{PREFIX}{key}_{secrets.token_urlsafe(32)}"
    row = ApiToken.objects.create(
        key=key,
        digest=digest_of(text),
        owner=owner,
        name=name.strip(),
        scopes=chosen,
        created_at=at,
        expires_at=at + datetime.timedelta(days=days),
        **limits,
    )
    return row, text


def digest_of(text: str) -> str:
    """Return what is stored of a token. Its 256 random bits need no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def revoke(token: ApiToken, at: datetime.datetime) -> None:
    """Revoke a token; one that already is keeps its first date."""
    ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=at)


def find_token(request: HttpRequest, at: datetime.datetime) -> ApiToken | None:
    """Return the token that a request presents, or None where it has none that counts now.

    Always hashes, looks up once and compares once, so that an unknown, an expired, a revoked and a disabled person's
    token take the same way.
    """
    scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    digest = digest_of(text.strip()[:_MAX_LENGTH])
    row = ApiToken.objects.select_related("owner").filter(digest=digest).first()
    is_known = hmac.compare_digest(row.digest if row else _NOBODY, digest)
    is_active = row is not None and row.is_active(at) and row.owner.is_active
    return row if is_known and is_active else None


def mark_used(token: ApiToken, at: datetime.datetime) -> None:
    """Remember when a token was last used for a write."""
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=at)
