"""Reading a request's filters."""

from collections.abc import Iterable

from django.http import HttpRequest

MAX_LENGTH = 200


def text_filters(request: HttpRequest, names: Iterable[str]) -> dict[str, str]:
    """Return the named GET parameters as short printable texts, empty where they are absent or not printable."""
    return {name: _clean(request.GET.get(name, "")) for name in names}


def _clean(value: str) -> str:
    text = value.strip()[:MAX_LENGTH]
    return text if text.isprintable() else ""


def whole_number(text: str) -> int | None:
    """Return a parameter as a number, None where it is absent, and 0, which numbers nothing, where it is no number."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def is_staff(request: HttpRequest) -> bool:
    """Tell whether the reader may see runs that are not public."""
    return request.user.is_active and request.user.is_staff
