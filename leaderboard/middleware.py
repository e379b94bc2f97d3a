"""Headers that every answer carries."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

GetResponse = Callable[[HttpRequest], HttpResponse]


def security_headers(get_response: GetResponse) -> GetResponse:
    """Deny device features, and keep answers to signed-in people out of shared caches."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
        has_session = settings.SESSION_COOKIE_NAME in request.COOKIES
        if (has_session and request.user.is_authenticated) or request.path.startswith(("/review/", "/admin/")):
            response.headers["Cache-Control"] = "private, no-store"
        return response

    return respond
