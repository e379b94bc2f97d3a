"""Tell people and machines when a published cell is withdrawn: e-mail, and a signed webhook."""

import hashlib
import hmac
import logging
import urllib.error
import urllib.request
from typing import Any

import msgspec
from django.conf import settings
from django.core.mail import send_mail

log = logging.getLogger(__name__)
TIMEOUT_S = 5


def send_notice(kind: str, subject: str, body: str, data: dict[str, Any]) -> None:
    """Send one notice to every configured receiver; a receiver that fails is logged and stops nothing.

    kind, data  what the webhook carries; never a score
    """
    if settings.NOTIFY_EMAILS:
        try:
            send_mail(subject, body, None, settings.NOTIFY_EMAILS)
        except OSError:
            log.exception("notice by e-mail failed: %s", subject)
    if settings.NOTIFY_WEBHOOK:
        _post(settings.NOTIFY_WEBHOOK, msgspec.json.encode({"kind": kind, "subject": subject, **data}))


def sign(body: bytes, secret: str) -> str:
    """Return the signature header of a webhook body: ``sha256=`` and the HMAC in hex."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _post(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "X-Proofline-Signature": sign(body, settings.NOTIFY_SECRET)}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            pass
    except (urllib.error.URLError, TimeoutError, ValueError):
        log.exception("notice by webhook failed: %s", url)
