"""docs/api.md: its examples run against a live server, and it names every parameter, code, command and address."""

import os
import re
import subprocess
import sys
from pathlib import Path

from django.conf import settings as django_settings

from leaderboard.api import openapi_document
from leaderboard.machine_urls import urlpatterns
from tests.api.helpers import Bundle, Site, TokenFor
from tests.factories import make_audit_text

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL)


def test_every_example_runs(site: Site, served: str, bundle: Bundle, token_for: TokenFor, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").write_bytes(bundle("tar.gz", model="example"))
    (tmp_path / "audit.yaml").write_text(make_audit_text(site["pending"].run_id))
    token = token_for("ingest", "audit", "verify")["Authorization"].removeprefix("Bearer ")
    environment = {**os.environ, "SITE": served, "TOKEN": token, "no_proxy": "*"}
    printed = []
    for kind, code in EXAMPLES:
        command = ["bash", "-euo", "pipefail", "-c", code] if kind == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (code, done.stderr)
        printed.append(done.stdout)
    cells, walked, verified, unchanged, exported, dry, real, audited, asked, followed, refused = printed
    assert '"score":' in cells
    assert walked == "5 cells of release 1\n"
    assert '"count":0,' in verified
    assert unchanged == "304\n"
    assert exported.startswith('"id","deck"') and "cells.ndjson" in exported
    assert '"is_dry_run":true' in dry
    assert real == "201 ['new']\n"
    assert '"verdict":"clean"' in audited
    assert '"state":"requested"' in asked and '"tier":"quick"' in asked
    assert followed == "202 requested None None\ncancelled\n"
    assert '"code":"invalid_parameter"' in refused


def test_every_parameter_of_lists_is_told() -> None:
    for path in ("/api/v1/cells", "/api/v1/runs"):
        for parameter in openapi_document()["paths"][path]["get"]["parameters"]:
            assert f"`{parameter['name']}" in TEXT, parameter["name"]


def test_every_address_for_machines_is_told() -> None:
    for pattern in urlpatterns:
        route = re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
        assert route.endswith(".json") or f"/{route}" in TEXT, route


def test_every_limit_is_told() -> None:
    for name in django_settings.RATE_LIMITS:
        assert f"PROOFLINE_RATE_{name.upper()}" in TEXT
