"""Rate limits: fixed windows counted in the cache, one bucket each for reading and uploads.

The bucket of verification minutes is counted from the jobs themselves: see `service/minutes.py`.
"""

import ipaddress
import logging
import time
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from redis.exceptions import RedisError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is counted, how much of it a window holds (0 = no limit), and how long the window is."""

    name: str
    quota: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a bucket after a request, and when it is full again."""

    bucket: Bucket
    remaining: int
    reset_seconds: int
    is_exceeded: bool

    def write_headers(self, response: HttpResponseBase) -> None:
        """Add the headers of the IETF draft, and the older three.

        An answer that has those of another bucket lists both; the older ones know of the first bucket only.
        """
        bucket = self.bucket
        policy = f'"{bucket.name}";q={bucket.quota};w={bucket.window_seconds}'
        state = f'"{bucket.name}";r={self.remaining};t={self.reset_seconds}'
        if response.has_header("RateLimit"):
            policy, state = f"{response['RateLimit-Policy']}, {policy}", f"{response['RateLimit']}, {state}"
        else:
            response["X-RateLimit-Limit"] = str(bucket.quota)
            response["X-RateLimit-Remaining"] = str(self.remaining)
            response["X-RateLimit-Reset"] = str(self.reset_seconds)
        response["RateLimit-Policy"], response["RateLimit"] = policy, state
        if self.is_exceeded:
            response["Retry-After"] = str(self.reset_seconds)


def bucket(name: str, quota: int | None = None) -> Bucket:
    """Return the bucket ``read``, ``upload`` or ``verification`` as configured, or with a quota of its own."""
    configured, window_seconds = settings.RATE_LIMITS[name]
    return Bucket(name, configured if quota is None else quota, window_seconds)


def spend(chosen: Bucket, who: str) -> Allowance | None:
    """Take one request from a bucket; None where it has no limit, or the cache that counts does not answer.

    who  a token or an address: each has a bucket of its own
    """
    if chosen.quota == 0:
        return None
    now = time.time()
    window, passed = divmod(int(now), chosen.window_seconds)
    key = f"limit:{chosen.name}:{who}:{window}"
    try:
        cache.add(key, 0, chosen.window_seconds + 60)
        used = cache.incr(key)
    except ValueError:
        return None
    except RedisError:
        log.warning("rate limits are off: the cache does not answer", exc_info=True)
        return None
    return Allowance(chosen, max(0, chosen.quota - used), chosen.window_seconds - passed, used > chosen.quota)


def address_of(request: HttpRequest) -> str:
    """Return whom to count an anonymous request to: the peer, or what the trusted proxy says; IPv6 by its /64."""
    text = request.META.get("REMOTE_ADDR", "")
    if settings.BEHIND_PROXY:
        text = request.headers.get("X-Forwarded-For", text).rpartition(",")[2].strip()
    return _counted_as(text)


@lru_cache(maxsize=4096)
def _counted_as(text: str) -> str:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "unknown"
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)
