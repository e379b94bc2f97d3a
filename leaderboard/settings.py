"""Settings, all from the environment, with defaults that work on one machine with nothing else installed.

Every variable that is read is listed in docs/operate.md; nothing else reads the environment.
"""

import os
from pathlib import Path

import dj_database_url
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def _text(name: str, default: str) -> str:
    return os.environ.get(name, default)


def _flag(name: str, default: bool) -> bool:
    value = os.environ.get(name, "1" if default else "0").strip().lower()
    if value not in _TRUE | _FALSE:
        raise ImproperlyConfigured(f"{name} is {value!r}; accepted are {', '.join(sorted((_TRUE | _FALSE) - {''}))}")
    return value in _TRUE


def _count(name: str, default: int) -> int:
    value = os.environ.get(name, str(default)).strip()
    if not (value.isascii() and value.isdigit()):
        raise ImproperlyConfigured(f"{name} is {value!r}; need a whole number, 0 or more")
    return int(value)


def _rate(name: str, default: str) -> tuple[int, int]:
    """Return (quota, seconds) of a rate such as ``600/60``; a quota of 0 means no limit."""
    quota, _, seconds = _text(name, default).partition("/")
    if not (quota.isascii() and quota.isdigit() and seconds.isascii() and seconds.isdigit() and int(seconds)):
        raise ImproperlyConfigured(f"{name} is {_text(name, default)!r}; need COUNT/SECONDS such as {default}")
    return int(quota), int(seconds)


def _list(name: str, default: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _subset(name: str, accepted: str) -> list[str]:
    """Return some words of a list; all of them by default."""
    found = _list(name, accepted)
    for word in found:
        if word not in accepted.split(","):
            raise ImproperlyConfigured(f"{name} holds {word!r}; accepted are {accepted}")
    return found


def _shares(name: str, default: str) -> dict[str, float]:
    """Return shares by key of a text such as ``default=0.02,CPU=9``."""
    found: dict[str, float] = {}
    for part in _list(name, default):
        key, _, text = part.partition("=")
        try:
            found[key] = float(text)
        except ValueError:
            found[key] = -1.0
        if not 0 < found[key] < float("inf"):
            raise ImproperlyConfigured(f"{name} holds {part!r}; need KEY=SHARE with a share above 0, such as {default}")
    if "default" not in found:
        raise ImproperlyConfigured(f"{name} is {_text(name, default)!r}; need an entry default=SHARE")
    return found


VAR_DIR = Path(_text("PROOFLINE_VAR_DIR", str(BASE_DIR / "var")))
VAR_DIR.mkdir(parents=True, exist_ok=True)


def _secret_key() -> str:
    """Return the configured key, or one made on first start and kept in the variable-data folder."""
    given = os.environ.get("PROOFLINE_SECRET_KEY")
    if given:
        return given
    path = VAR_DIR / "secret_key"
    if not path.exists():
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(os.urandom(40).hex())
    return path.read_text().strip()


DEBUG = _flag("PROOFLINE_DEBUG", False)
SECRET_KEY = _secret_key()
ALLOWED_HOSTS = _list("PROOFLINE_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _list("PROOFLINE_ORIGINS", "")
DEFAULT_URL = "http://127.0.0.1:8000"
SITE_URL = _text("PROOFLINE_URL", DEFAULT_URL).rstrip("/")
IS_HTTPS = SITE_URL.startswith("https://")

INSTALLED_APPS = [
    "leaderboard",
    "grading",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
]

MIDDLEWARE = [
    "leaderboard.api.early.unchanged_first",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "leaderboard.middleware.security_headers",
]

ROOT_URLCONF = "leaderboard.urls"
WSGI_APPLICATION = "leaderboard.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "leaderboard.context.site",
            ],
            "builtins": ["leaderboard.templatetags.proofline"],
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        _text("DATABASE_URL", f"sqlite:///{VAR_DIR / 'proofline.sqlite3'}"), conn_max_age=60, conn_health_checks=True
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 30}

# Counts requests for rate limits. Without Redis each server process counts by itself.
CACHE_URL = _text("PROOFLINE_CACHE_URL", "")
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": CACHE_URL}
    if CACHE_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 100_000}}
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/admin/login/"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "leaderboard.finders.PlotlyFinder",
    "leaderboard.finders.SheetFinder",
]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "strict-origin-when-cross-origin"
SECURE_SSL_REDIRECT = IS_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if IS_HTTPS else 0
BEHIND_PROXY = _flag("PROOFLINE_BEHIND_PROXY", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

# Two persons per cell: an approver may not approve a run that the same person audited or uploaded.
TWO_PERSON_RULE = _flag("PROOFLINE_TWO_PERSON_RULE", True)

# Who is told when a published cell is withdrawn. The webhook's body is signed with the secret.
NOTIFY_EMAILS = _list("PROOFLINE_NOTIFY_EMAILS", "")
NOTIFY_WEBHOOK = _text("PROOFLINE_NOTIFY_WEBHOOK", "")
NOTIFY_SECRET = _text("PROOFLINE_NOTIFY_SECRET", "")
EMAIL_HOST = _text("PROOFLINE_EMAIL_HOST", "localhost")
DEFAULT_FROM_EMAIL = _text("PROOFLINE_EMAIL_FROM", "proofline@localhost")

# The API: requests per window by token, else by address; verification counts minutes of GPU time.
RATE_LIMITS = {
    "read": _rate("PROOFLINE_RATE_READ", "600/60"),
    "upload": _rate("PROOFLINE_RATE_UPLOAD", "60/3600"),
    "verification": _rate("PROOFLINE_RATE_VERIFICATION", "120/86400"),
}
# Grading on attached GPUs. The broker carries wake-ups and the hosts' messages; without a server it is a folder.
BROKER_URL = _text("PROOFLINE_BROKER_URL", f"filesystem://{VAR_DIR / 'broker'}")
# A host that is silent for so long has lost its job.
LEASE_SECONDS = _count("PROOFLINE_LEASE_SECONDS", 30)
# After how many minutes a grade is ended from outside, by tier.
GRADE_MINUTES = {
    "quick": _count("PROOFLINE_GRADE_MINUTES_QUICK", 15),
    "full": _count("PROOFLINE_GRADE_MINUTES_FULL", 45),
}
JOB_ATTEMPTS = _count("PROOFLINE_JOB_ATTEMPTS", 3)
JOB_HOURS = _count("PROOFLINE_JOB_HOURS", 72)
# A folder that web and hosts share, for archives too large for a message; empty = such archives are refused.
EVIDENCE_DIR = _text("PROOFLINE_EVIDENCE_DIR", "")
# What a host grades to prove itself, how far it may depart from its GPU's record, and how often.
CALIBRATION_PROBLEM = _text("PROOFLINE_CALIBRATION_PROBLEM", "hard/07_w4a16_gemm")
CALIBRATION_TOLERANCES = _shares("PROOFLINE_CALIBRATION_TOLERANCES", "default=0.02,CPU=9")
CALIBRATION_HOURS = _count("PROOFLINE_CALIBRATION_HOURS", 24)
# Which published and new results are graded again without anybody asking.
VERIFY_POLICIES = _subset("PROOFLINE_VERIFY_POLICIES", "release,new_best,random,reverify")
VERIFY_RANDOM_PERCENT = _count("PROOFLINE_VERIFY_RANDOM_PERCENT", 5)
VERIFY_AGAIN_DAYS = _count("PROOFLINE_VERIFY_AGAIN_DAYS", 90)
MAX_UPLOAD_BYTES = _count("PROOFLINE_MAX_UPLOAD_BYTES", 64 * 1024 * 1024)
# For how long a CDN may answer without asking; above 0 only where a withdrawal also purges the CDN.
SHARED_CACHE_SECONDS = _count("PROOFLINE_SHARED_CACHE_SECONDS", 0)
# SPDX id of the licence that exported data carry.
DATA_LICENCE = _text("PROOFLINE_DATA_LICENCE", "Apache-2.0")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": _text("PROOFLINE_LOG_LEVEL", "WARNING")},
}
