"""With a real Redis: processes share the counters of rate limits, and a Redis that is gone stops no answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from django.core.cache import caches
from django.test import Client

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ.get("PROOFLINE_TEST_REDIS", "redis://127.0.0.1:6379/15")
pytestmark = [pytest.mark.redis, pytest.mark.django_db]

ASK = """
import django
django.setup()
from django.test import Client
print(Client().get("/api/v1/gpus").status_code)
"""


def use(settings: pytest.FixtureRequest, location: str) -> None:
    """Let the site count in Redis from here on."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": location}}
    settings.RATE_LIMITS = {name: (3, 3600) for name in settings.RATE_LIMITS}


@pytest.fixture
def server() -> str:
    """The address of a Redis server with an empty database; the test skips, and says so, where none answers."""
    try:
        connection = redis.Redis.from_url(SERVER, socket_connect_timeout=2)
        connection.flushdb()
    except redis.ConnectionError:
        pytest.skip("no Redis server answers; set PROOFLINE_TEST_REDIS to use one")
    connection.close()
    return SERVER


def test_two_processes_share_one_readers_limit(server: str, settings: pytest.FixtureRequest, client: Client) -> None:
    use(settings, server)
    assert [client.get("/api/v1/gpus").status_code for _ in range(3)] == [200, 200, 200]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "leaderboard.settings",
        "PROOFLINE_CACHE_URL": server,
        "PROOFLINE_RATE_READ": "3/3600",
        "PROOFLINE_HOSTS": "testserver",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "429"
    caches["default"].close()


def test_a_redis_that_is_gone_stops_no_answer(settings: pytest.FixtureRequest, server: str, client: Client) -> None:
    use(settings, "redis://127.0.0.1:1/0")
    assert [client.get("/api/v1/gpus").status_code for _ in range(5)] == [200] * 5
