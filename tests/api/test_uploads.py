"""Uploads: who may, what is taken, what is refused, and that nothing is left behind."""

import gzip
import io
import json
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from leaderboard import tokens
from leaderboard.models import ApiToken, Assessment, Audit, Blob, Finding, LanguageModel, Rejection, Run
from tests.api.helpers import Bundle, TokenFor, pack_files
from tests.database import make_user
from tests.factories import make_audit_text

RUNS, AUDITS = "/api/v1/runs", "/api/v1/audits?deck=hard"
ZIP, GZIP, YAML = "application/zip", "application/gzip", "application/yaml"
ID = "20260701_120000_codex_gpt-test_07_w4a16_gemm"
STORED = (Run, Audit, Blob, Rejection, Assessment, Finding, LanguageModel)


def post(client: Client, data: bytes, headers: dict[str, str], kind: str = ZIP, address: str = RUNS):
    """Send a body."""
    return client.post(address, data, content_type=kind, headers=headers)


def count_rows() -> list[int]:
    """How many rows uploads could have left."""
    return [model.objects.count() for model in STORED]


def left_files() -> list[Path]:
    """What uploads left on the disk."""
    folder = django_settings.VAR_DIR / "incoming"
    return list(folder.rglob("*")) if folder.exists() else []


@pytest.mark.parametrize(("kind", "type_"), [("zip", ZIP), ("tar.gz", GZIP)])
def test_a_bundle_is_201_then_200_then_409_for_other_content(
    kind: str, type_: str, client: Client, token_for: TokenFor, bundle: Bundle
) -> None:
    headers = token_for("ingest")
    first = post(client, bundle(kind), headers, type_)
    (run,) = first.json()["runs"]
    assert (first.status_code, run["outcome"], run["run_id"], run["standing"]) == (201, "new", ID, "pending")
    assert run["recomputed"][0] == pytest.approx(float(run["reported"]), rel=2e-3)
    assert Run.objects.get().uploader.username == "lab"
    again = post(client, bundle(kind), headers, type_)
    assert (again.status_code, again.json()["runs"][0]["outcome"], again.json()["runs"][0]["findings"]) == (
        200,
        "held",
        None,
    )
    before = count_rows()
    other = post(client, bundle(kind, solution="import other\n"), headers, type_)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert count_rows() == before
    assert not left_files()


def test_a_dry_run_reports_all_findings_and_stores_nothing(client: Client, token_for: TokenFor, bundle: Bundle) -> None:
    headers = token_for("ingest")
    before = count_rows()
    response = post(client, bundle(device_name=None), headers, address=f"{RUNS}?dry_run=true")
    report = response.json()
    codes = {finding["code"] for finding in report["runs"][0]["findings"]}
    assert (response.status_code, report["is_dry_run"]) == (200, True)
    assert codes >= {"gpu.unproven", "audit.missing"}
    assert report["runs"][0]["blockers"] and report["runs"][0]["shapes"]
    assert count_rows() == before
    assert not left_files()


def test_an_audit_is_201_then_200_and_judges_its_run(client: Client, token_for: TokenFor, bundle: Bundle) -> None:
    post(client, bundle(), token_for("ingest"))
    headers, text = token_for("audit"), make_audit_text(ID).encode()
    dry = post(client, text, headers, YAML, f"{AUDITS}&dry_run=true")
    assert (dry.status_code, Audit.objects.count()) == (200, 0)
    first = post(client, text, headers, YAML, f"{AUDITS}&file={ID}.yaml")
    assert (first.status_code, first.json()["audits"][0]["run"]) == (201, f"hard/H200/{ID}")
    assert post(client, text, headers, YAML, f"{AUDITS}&file={ID}.yaml").status_code == 200
    assert Run.objects.get().assessment.standing == "eligible"
    assert Audit.objects.get().uploader.username == "lab"


@pytest.mark.parametrize(
    "data", [b"verdict: [unclosed", b"\xff\xfe\x00", b"- just\n- a list\n", b"!!python/object:os.system {}", b"\0"]
)
def test_a_file_that_is_no_audit_is_422(data: bytes, client: Client, token_for: TokenFor) -> None:
    before = count_rows()
    response = post(client, data, token_for("audit"), YAML, AUDITS)
    assert (response.status_code, response.json()["code"]) == (422, "bad_audit")
    assert count_rows() == before


def test_audits_in_a_bundle_need_their_own_scope(client: Client, token_for: TokenFor, bundle: Bundle) -> None:
    data = bundle(extra={f"audits/hard/{ID}.yaml": make_audit_text(ID).encode()})
    refused = post(client, data, token_for("ingest"))
    assert (refused.status_code, refused.json()["code"], Run.objects.count()) == (403, "insufficient_scope", 0)
    taken = post(client, data, token_for("ingest", "audit"))
    assert (taken.status_code, len(taken.json()["audits"])) == (201, 1)


def zip_with(name: str, mode: int = 0, data: bytes = b"x") -> bytes:
    """A zip whose one member has a name and a mode."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as packed:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        packed.writestr(member, data)
    return target.getvalue()


def tar_with(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """A tar.gz whose one member has a name and a type."""
    target = io.BytesIO()
    with tarfile.open(target and None, "w:gz", fileobj=target) as packed:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        packed.addfile(member)
    return target.getvalue()


def bomb() -> bytes:
    """A small zip that unpacks to much more than its size allows."""
    return pack_files({f"hard/H200/{ID}/benchmark.log": bytes(40_000_000)})


HOSTILE_ZIPS: dict[str, Callable[[], bytes]] = {
    "zip slip": lambda: zip_with("../../x"),
    "absolute": lambda: zip_with("/etc/x"),
    "drive": lambda: zip_with("C:/x"),
    "backslash": lambda: zip_with("..\\..\\x"),
    "symlink": lambda: zip_with("link", stat.S_IFLNK | 0o777, b"/etc/passwd"),
    "device": lambda: zip_with("device", stat.S_IFCHR),
    "bomb": bomb,
    "too many": lambda: pack_files({f"f{index}": b"" for index in range(10_001)}),
    "too deep": lambda: zip_with("a/" * 30 + "x"),
    "case collision": lambda: pack_files({"a/Result.json": b"1", "a/result.json": b"2"}),
    "4 kB name": lambda: zip_with("n" * 4096),
    "newline in name": lambda: zip_with("a\nb"),
    "right-to-left mark": lambda: zip_with("a\u202egnp.exe"),
    "dots": lambda: zip_with("a/./b"),
    "nested only": lambda: zip_with("inner.zip", data=zip_with("x")),
    "no run": lambda: pack_files({"README.md": b"nothing"}),
    "empty": lambda: pack_files({}),
    "truncated": lambda: zip_with("x", data=b"y" * 5000)[:-40],
    "garbage after magic": lambda: b"PK\x03\x04" + bytes(200),
    "deck": lambda: pack_files({f"none/H200/{ID}/result.json": b"{}"}),
    "run id up": lambda: pack_files({"result.json": json.dumps({"run_id": "../../etc"}).encode()}),
    "not finite": lambda: pack_files({f"hard/H200/{ID}/result.json": b'{"peak_fraction": NaN}'}),
    "surrogate": lambda: pack_files({f"hard/H200/{ID}/result.json": b'{"model": "\\ud83d"}'}),
}
HOSTILE_TARS: dict[str, Callable[[], bytes]] = {
    "tar slip": lambda: tar_with("../x"),
    "tar absolute": lambda: tar_with("/x"),
    "tar symlink": lambda: tar_with("x", tarfile.SYMTYPE, "/etc/passwd"),
    "tar hard link": lambda: tar_with("x", tarfile.LNKTYPE, "/etc/passwd"),
    "tar device": lambda: tar_with("x", tarfile.CHRTYPE),
    "tar pipe": lambda: tar_with("x", tarfile.FIFOTYPE),
    "gzip bomb": lambda: gzip.compress(bytes(300_000_000), 9),
    "gzip of text": lambda: gzip.compress(b"hello"),
    "truncated gzip": lambda: tar_with("x")[:-10],
}


@pytest.mark.parametrize("name", HOSTILE_ZIPS)
def test_a_hostile_zip_is_refused_and_leaves_nothing(name: str, client: Client, token_for: TokenFor, tmp_path) -> None:
    refuse(client, HOSTILE_ZIPS[name](), token_for("ingest"), ZIP)


@pytest.mark.parametrize("name", HOSTILE_TARS)
def test_a_hostile_tar_is_refused_and_leaves_nothing(name: str, client: Client, token_for: TokenFor) -> None:
    refuse(client, HOSTILE_TARS[name](), token_for("ingest"), GZIP)


def refuse(client: Client, data: bytes, headers: dict[str, str], kind: str) -> None:
    """Send it and see that it is a clear 422 that names no path of this machine."""
    before = count_rows()
    response = post(client, data, headers, kind)
    body = response.json()
    assert (response.status_code, body["code"]) == (422, "bad_bundle"), body
    assert body["errors"]
    assert str(django_settings.VAR_DIR) not in response.content.decode()
    assert "/tmp" not in response.content.decode()
    assert count_rows() == before
    assert not left_files()


def test_names_in_any_script_and_trailing_dots_are_taken_as_files(
    client: Client, token_for: TokenFor, bundle: Bundle
) -> None:
    extra = {
        f"hard/H200/{ID}/智谱.txt": b"1",
        f"hard/H200/{ID}/dots...": b"2",
        f"hard/H200/{ID}/inner.zip": zip_with("../x"),
    }
    response = post(client, bundle(extra=extra), token_for("ingest"))
    assert response.status_code == 201
    record = json.loads(bytes(Run.objects.get().record))
    assert {"智谱.txt", "dots...", "inner.zip"} <= {entry["path"] for entry in record["files"]}


def test_duplicate_members_are_refused(client: Client, token_for: TokenFor) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as packed:
        packed.writestr("a.txt", b"1")
        packed.writestr("b.txt", b"2")
    refuse(client, target.getvalue().replace(b"b.txt", b"a.txt"), token_for("ingest"), ZIP)


def test_a_member_that_lies_about_its_size_is_refused(client: Client, token_for: TokenFor) -> None:
    data = bytearray(zip_with("x", data=b"y" * 1000))
    where = data.index(b"PK\x01\x02") + 24
    data[where : where + 4] = struct.pack("<I", 5)
    refuse(client, bytes(data), token_for("ingest"), ZIP)


@pytest.mark.parametrize(
    ("data", "kind", "status", "code"),
    [
        (b"PK\x03\x04", "application/json", 415, "unsupported_type"),
        (b"PK\x03\x04", "multipart/form-data; boundary=x", 415, "unsupported_type"),
        (b"%PDF-1.7", ZIP, 415, "unsupported_type"),
        (b"", ZIP, 411, "length_required"),
    ],
)
def test_a_wrong_type_or_no_body_is_told(
    data: bytes, kind: str, status: int, code: str, client: Client, token_for: TokenFor
) -> None:
    response = client.generic("POST", RUNS, data, kind, headers=token_for("ingest"), CONTENT_TYPE=kind)
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: Client, token_for: TokenFor, settings) -> None:
    settings.MAX_UPLOAD_BYTES = 100
    response = post(client, b"PK\x03\x04" + bytes(200), token_for("ingest"))
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert not left_files()


def test_a_body_that_ends_early_is_told(client: Client, token_for: TokenFor) -> None:
    cut = {"wsgi.input": io.BytesIO(b"PK\x03\x04abc"), "CONTENT_LENGTH": "5000"}
    response = client.generic("POST", RUNS, b"x", ZIP, headers=token_for("ingest"), **cut)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert not left_files()


def make_refused(kind: str, token_for: TokenFor) -> dict[str, str]:
    """The headers of a request that must be refused, each for another cause."""
    now = timezone.now()
    headers = token_for("read" if kind == "other scope" else "ingest", user="someone")
    row = ApiToken.objects.get()
    if kind == "expired":
        ApiToken.objects.update(created_at=now.replace(year=2020), expires_at=now.replace(year=2021))
    elif kind == "revoked":
        tokens.revoke(row, now)
    elif kind == "person disabled":
        row.owner.is_active = False
        row.owner.save()
    return {
        "none": {},
        "unknown": {"Authorization": "Bearer pl_00000000_" + "x" * 43},
        "not ASCII": {"Authorization": "Bearer é"},
        "huge": {"Authorization": "Bearer " + "x" * 9000},
        "another scheme": {"Authorization": headers["Authorization"].replace("Bearer", "Basic")},
        "cut": {"Authorization": headers["Authorization"][:-1]},
    }.get(kind, headers)


@pytest.mark.parametrize(
    "kind",
    [
        "none",
        "unknown",
        "not ASCII",
        "huge",
        "another scheme",
        "cut",
        "other scope",
        "expired",
        "revoked",
        "person disabled",
    ],
)
def test_every_token_that_does_not_count_gets_the_same_answer(
    kind: str, client: Client, token_for: TokenFor, bundle: Bundle, django_assert_max_num_queries
) -> None:
    headers = make_refused(kind, token_for)
    data, before = bundle(), count_rows()
    with django_assert_max_num_queries(1):
        response = post(client, data, headers)
    shown = {name: value for name, value in response.items() if "RateLimit" not in name and "Security" not in name}
    expected = post(client, b"", {})
    assert (response.status_code, response.content) == (401, expected.content)
    assert shown == {name: value for name, value in expected.items() if name in shown}
    assert count_rows() == before


def test_a_token_is_stored_as_a_digest_and_remembers_its_last_use(
    client: Client, token_for: TokenFor, bundle: Bundle
) -> None:
    headers = token_for("ingest")
    secret = headers["Authorization"].partition(" ")[2]
    row = ApiToken.objects.get()
    assert secret.startswith("pl_")
    assert secret not in str([getattr(row, field.name) for field in ApiToken._meta.fields])
    client.get("/api/v1/gpus", headers=headers)
    row.refresh_from_db()
    assert row.last_used_at is None
    post(client, bundle(), headers)
    row.refresh_from_db()
    assert row.last_used_at is not None


def test_a_token_may_have_a_limit_of_its_own(client: Client, token_for: TokenFor) -> None:
    few, many = token_for("ingest", uploads_per_hour=1), token_for("ingest")
    assert [post(client, b"no zip", few).status_code for _ in range(2)] == [415, 429]
    assert [post(client, b"no zip", many).status_code for _ in range(2)] == [415, 415]


def test_the_command_makes_lists_and_revokes(db: None, capsys) -> None:
    make_user("lab")
    call_command("token", "create", user="lab", name="ci", scope=["ingest"])
    text = capsys.readouterr().out.strip()
    call_command("token", "list", json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["scopes"], row["user"], text.startswith(row["key"])) == (["ingest"], "lab", True)
    call_command("token", "revoke", row["key"])
    assert ApiToken.objects.get().revoked_at is not None
    for options in ({"user": "none"}, {"user": "lab", "name": ""}, {"user": "lab", "name": "x", "days": 9999}):
        with pytest.raises(CommandError):
            call_command("token", "create", **{"name": "x", "scope": ["ingest"], **options})


@pytest.mark.parametrize(("role", "standing"), [("auditor", "eligible"), ("operator", "blocked")])
def test_only_an_auditors_upload_settles_an_earlier_audit(
    role: str, standing: str, client: Client, token_for: TokenFor, bundle: Bundle
) -> None:
    post(client, bundle(), token_for("ingest"))
    post(client, make_audit_text(ID, "reward_hack").encode(), token_for("audit"), YAML, f"{AUDITS}&file={ID}.yaml")
    make_user("olga", role)
    text = make_audit_text(ID, "clean", supersedes=[Audit.objects.get().digest], summary="Read both.")
    settled = post(client, text.encode(), token_for("audit", user="olga"), YAML, f"{AUDITS}&file={ID}.yaml")
    assert settled.status_code == 201
    assert Run.objects.get().assessment.standing == standing
