"""Transcripts are public with their run, unless a rule saw a secret in them."""

import json
from pathlib import Path

import pytest
from django.test import Client

from leaderboard import publishing
from leaderboard.models import Run
from leaderboard.publishing import Act
from tests.database import Ingest, load_run
from tests.factories import make_audit_text, write_archive

SECRET = "AKIA" + "Q3EGRZ7XVTJH5LMW"


@pytest.mark.parametrize(("words", "status"), [("Timed it twice.", 200), (f"export AWS_KEY={SECRET}", 404)])
def test_a_transcript_with_a_secret_is_for_staff_only(
    tmp_path: Path, ingest: Ingest, act: Act, client: Client, words: str, status: int, admin_user: object
) -> None:
    folder = write_archive(tmp_path / "tree")
    entry = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": words}]}}
    (folder / "transcript.jsonl").write_text(json.dumps(entry) + "\n")
    audit = tmp_path / "audits" / "hard" / f"{folder.name}.yaml"
    audit.parent.mkdir(parents=True)
    audit.write_text(make_audit_text(folder.name))
    ingest(folder, audit)
    run = load_run(folder.name)
    publishing.approve(run, act)
    publishing.release(act)
    address = f"/runs/{run}/files/transcript.jsonl"
    assert client.get(address).status_code == status
    assert client.get(f"/runs/{run}/files/solution.py").status_code == 200
    page = client.get(f"/runs/{run}/").content.decode()
    assert ("files/transcript.jsonl" in page) is (status == 200)
    client.force_login(admin_user)
    assert client.get(address).status_code == 200


def test_the_methodology_tells_leads_from_rules(db: None, client: Client) -> None:
    page = client.get("/methodology/").content.decode()
    assert "A lead for the auditor" in page
    assert Run.objects.count() == 0
