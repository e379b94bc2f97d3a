"""Run directories, trees, bundles: what becomes an item, and what is refused by name."""

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import zipfile

import pytest

import grading.bundle
from grading import rundir
from grading.archive import AuditItem, KeyHint, Rejection, RunItem, content_digest, read_paths, read_run
from grading.record import RecordError
from grading.rundir import pack_evidence

RUN_ID = "20260701_120000_codex_model-1_07_w4a16_gemm"
MULTI_ID = "20260701_120000_grok_model-1_01_allreduce_residual"
WHERE = f"hard/H100/{RUN_ID}"


def make_files(**changes):
    result = {
        "run_id": RUN_ID,
        "problem": "07_w4a16_gemm",
        "harness": "codex",
        "model": "model-1",
        "peak_fraction": 0.25,
    }
    return {
        "result.json": json.dumps(result | changes).encode(),
        "benchmark.log": b"shape=0 variant=solution tflops=1.000 gbps=2.000 ms=0.500\npeak_fraction: 0.2500\n",
        "check.log": b"PASS\n",
        "solution.py": b"x = 1\n",
    }


def write_tree(root, files):
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_run(root, where=WHERE, **changes):
    write_tree(root / where, make_files(**changes))
    return root / where


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return path


def make_member(name, data=b"", **fields):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for field, value in fields.items():
        setattr(member, field, value)
    return member, data


def write_tar(path, members):
    with tarfile.open(path, "w:gz") as bundle:
        for member, data in members:
            bundle.addfile(member, io.BytesIO(data))
    return path


def bundle_files(**more):
    return {f"{WHERE}/{name}": data for name, data in make_files().items()} | more


def read_all(*paths, **hint):
    return list(read_paths(paths, **hint))


def reason_of(*paths, **hint):
    (item,) = read_all(*paths, **hint)
    assert isinstance(item, Rejection)
    return item.reason


def test_it_reads_a_run_by_its_path(tmp_path):
    record, blobs = read_run(write_run(tmp_path))
    assert str(record.key) == WHERE
    assert (record.score_text, record.benchmark.measurements[0].shape) == ("0.25", "0")
    assert record.check.named("PASS")
    assert blobs[record.benchmark.digest].startswith(b"shape=0")


def test_it_lists_every_file_with_digest_size_and_role(tmp_path):
    run = write_run(tmp_path)
    write_tree(run, {"scratch/a.cu": b"//", "template_files/b.py": b"", "transcript.jsonl": b"{}", "stderr.log": b"e"})
    record, _ = read_run(run)
    assert {file.path: file.role for file in record.files} == {
        "benchmark.log": "benchmark",
        "check.log": "check",
        "result.json": "result",
        "scratch/a.cu": "sidecar",
        "solution.py": "solution",
        "stderr.log": "other",
        "template_files/b.py": "other",
        "transcript.jsonl": "transcript",
    }
    solution = next(file for file in record.files if file.role == "solution")
    assert (solution.size_bytes, solution.digest) == (6, hashlib.sha256(b"x = 1\n").hexdigest())


def test_it_takes_deck_and_gpu_from_the_caller(tmp_path):
    write_run(tmp_path, RUN_ID)
    (item,) = read_all(tmp_path, deck="hard", gpu="B200")
    assert str(item.record.key) == f"hard/B200/{RUN_ID}"


def test_it_keeps_the_name_as_key_and_the_id_inside(tmp_path):
    other = RUN_ID.replace("codex", "claude")
    record, _ = read_run(write_run(tmp_path, run_id=other))
    assert (record.key.run_id, record.inner_run_id) == (RUN_ID, other)


def test_its_content_digest_depends_on_files_only(tmp_path):
    first, _ = read_run(write_run(tmp_path / "a"))
    second, _ = read_run(write_run(tmp_path / "b", where=WHERE.replace("H100", "B200")))
    assert content_digest(first) == content_digest(second)
    write_tree(tmp_path / "b" / WHERE.replace("H100", "B200"), {"more.txt": b""})
    third, _ = read_run(tmp_path / "b" / WHERE.replace("H100", "B200"))
    assert content_digest(third) != content_digest(first)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (f"hart/H100/{RUN_ID}", "deck is 'hart'; accepted are "),
        (f"hard/H100x4/{RUN_ID}", "gpu is 'H100x4'; deck hard accepts "),
        ("hard/H100/some_run", "run directory's name is 'some_run'; need "),
    ],
)
def test_it_lists_what_is_accepted_for_an_unknown_key(tmp_path, where, reason):
    write_run(tmp_path, where)
    assert reason_of(tmp_path).startswith(reason)


def test_it_reads_the_others_after_a_bad_run(tmp_path):
    write_run(tmp_path, WHERE.replace("120000", "110000"), correct="yes")
    write_run(tmp_path)
    rejection, run = read_all(tmp_path)
    assert "correct is" in rejection.reason
    assert isinstance(run, RunItem)


def test_it_names_stray_files_and_passes_over_hidden_ones(tmp_path):
    write_run(tmp_path)
    write_tree(tmp_path, {"README.md": b"", "hard/list.csv": b"", ".hidden": b"", ".git/config": b""})
    rejections = [item for item in read_all(tmp_path) if isinstance(item, Rejection)]
    assert [os.path.basename(item.path) for item in rejections] == ["README.md", "list.csv"]
    assert {item.reason for item in rejections} == {"not part of a run archive"}


def test_it_names_a_run_directory_without_a_result(tmp_path):
    write_tree(tmp_path / WHERE, {"benchmark.log": b""})
    assert reason_of(tmp_path) == "holds neither result.json nor meta.log"


def test_it_names_an_empty_folder_and_a_missing_path(tmp_path):
    assert reason_of(tmp_path) == "holds no run and no audit"
    assert reason_of(tmp_path / "none") == "cannot be read: no such file or directory"


def test_it_reads_audits_with_the_deck_of_their_folder(tmp_path):
    write_tree(tmp_path / "hard", {f"{RUN_ID}.yaml": b"verdict: clean\n", "ci.yml": b"jobs: 1\n"})
    audit, rejection = read_all(tmp_path)
    assert isinstance(audit, AuditItem)
    assert (audit.audit.deck, audit.audit.run_id, audit.blob) == ("hard", RUN_ID, b"verdict: clean\n")
    assert "no audit" in rejection.reason


def test_it_refuses_links_and_pipes_without_following_them(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / "secret").write_bytes(b"secret")
    os.symlink(tmp_path / "secret", run / "notes.txt")
    os.symlink("/", run / "folder")
    os.mkfifo(run / "pipe")
    items = read_all(tmp_path / "hard")
    assert [os.path.basename(item.path) for item in items[1:]] == ["folder", "notes.txt", "pipe"]
    assert b"secret" not in items[0].blobs.values()
    assert len(items[0].record.notes) == 3


def test_it_refuses_a_linked_result_and_a_linked_run(tmp_path):
    run = write_run(tmp_path / "a")
    os.rename(run / "result.json", tmp_path / "real.json")
    os.symlink(tmp_path / "real.json", run / "result.json")
    assert "result.json" in reason_of(tmp_path / "a")
    os.symlink(run, tmp_path / "link")
    assert "link" in reason_of(tmp_path / "link")


def test_it_refuses_a_file_that_is_too_long_and_keeps_the_run(tmp_path):
    run = write_run(tmp_path)
    os.truncate(run / "benchmark.log", 65 * 1024 * 1024)
    item, rejection = read_all(tmp_path)
    assert "at most 67108864 are read" in rejection.reason
    assert item.record.benchmark.faults[0].reason == rejection.reason
    assert item.record.benchmark.measurements == ()


def test_it_refuses_a_name_that_is_no_text(tmp_path):
    run = write_run(tmp_path)
    (run / os.fsdecode(b"a\xff")).write_bytes(b"")
    item, rejection = read_all(tmp_path)
    assert rejection.path.isprintable()
    assert len(item.record.files) == 4


def test_it_reads_packed_evidence_as_the_grader_wrote_it(tmp_path):
    plain, packed = (write_run(tmp_path / name) for name in ("plain", "packed"))
    for root in (plain, packed):
        (root / "evidence.json").write_text('{"schema": 1}')
    pack_evidence(packed)
    assert not (packed / "evidence.json").exists()
    one, other = read_run(plain), read_run(packed)
    assert content_digest(one[0]) == content_digest(other[0])
    (packed / "evidence.json").write_text('{"schema": 2}')
    beside = read_run(packed)[0]
    assert [file.path for file in beside.files].count("evidence.json") == 1
    assert any("evidence.json.gz left out: stands packed beside" in note for note in beside.notes)


def test_it_leaves_out_packed_evidence_that_is_damaged_or_swells(tmp_path, monkeypatch):
    root = write_run(tmp_path)
    (root / "evidence.json.gz").write_bytes(gzip.compress(b"{}")[:-4])
    assert any("evidence.json.gz left out: is no gzip file" in note for note in read_run(root)[0].notes)
    monkeypatch.setattr(rundir, "MAX_FILE_BYTES", 1000)
    (root / "evidence.json.gz").write_bytes(gzip.compress(b" " * 1001))
    assert any("more than 1000 bytes long when unpacked" in note for note in read_run(root)[0].notes)


def test_it_reads_the_environment_and_its_device(tmp_path):
    run = write_run(tmp_path, gpu_name="said by hand")
    write_tree(run, {"environment.json": b'{"device_name": "NVIDIA H100 PCIe", "torch": "2"}'})
    record, _ = read_run(run)
    assert (record.device_name, record.environment.torch) == ("NVIDIA H100 PCIe", "2")


@pytest.mark.parametrize(("label", "framework"), [(b"cuda_raw+ptx\n", "cuda_raw+ptx"), (b"<b>", None), (b"\xff", None)])
def test_it_reads_the_language_label(tmp_path, label, framework):
    run = write_run(tmp_path)
    write_tree(run, {"scratch/framework.txt": label})
    assert read_run(run)[0].framework == framework


def test_it_builds_a_multi_run_from_its_meta_log(tmp_path):
    meta = (
        f"[run_agent] {MULTI_ID} budget=3600s lock=/l\n[run_agent] agent exit=0\ncheck: PASS\n"
        "device: NVIDIA H100 80GB HBM3 x4 (visible=4, distinct=NVIDIA H100 80GB HBM3)\n"
        "peak_fraction: 0.3057\nRESULT: OK\n"
    )
    where = f"multi/H100x4/{MULTI_ID}"
    solution = "ws/problems-h100x4/01_allreduce_residual/solution.py"
    write_tree(tmp_path / where, {"meta.log": meta.encode(), solution: b"x\n"})
    (item,) = read_all(tmp_path)
    record = item.record
    assert (record.problem, record.harness, record.model) == ("01_allreduce_residual", "grok", "model-1")
    assert (record.correct, record.score_text, record.harness_exit_code) == (True, "0.3057", 0)
    assert record.device_name == "NVIDIA H100 80GB HBM3 x4"
    assert record.check.named("PASS")
    assert {file.role for file in record.files} == {"result", "solution"}


def test_it_takes_no_score_from_a_meta_log_with_two(tmp_path):
    where = tmp_path / f"multi/H100x4/{MULTI_ID}"
    write_tree(where, {"meta.log": b"check: PASS\ncheck: FAIL\nspeedup: 1.0000\nspeedup: 2.0000\n"})
    record, _ = read_run(where)
    assert (record.correct, record.score_text) == (None, None)


def test_it_raises_its_own_error_for_a_path_that_is_no_folder(tmp_path):
    with pytest.raises(RecordError, match="cannot be read"):
        read_run(tmp_path / "gone", KeyHint("hard", "H100", RUN_ID))


def test_it_reads_a_zip_and_a_tar_alike(tmp_path):
    write_zip(tmp_path / "a.zip", bundle_files())
    write_tar(tmp_path / "b.tar.gz", [make_member(name, data) for name, data in bundle_files().items()])
    first, second = read_all(tmp_path)
    assert first.record == second.record
    assert first.path.endswith(f"a.zip/{WHERE}")


def test_it_reads_a_run_at_the_top_of_a_bundle(tmp_path):
    write_zip(tmp_path / "upload.zip", make_files())
    (item,) = read_all(tmp_path / "upload.zip", deck="hard", gpu="H100")
    assert item.record.key.run_id == RUN_ID


def test_it_keeps_a_nested_archive_as_a_plain_file(tmp_path):
    inner = write_zip(tmp_path / "inner.bin", bundle_files()).read_bytes()
    write_zip(tmp_path / "a.zip", bundle_files(**{"inner.zip": inner, f"{WHERE}/kept.zip": inner}))
    items = read_all(tmp_path / "a.zip")
    assert [type(item) for item in items] == [RunItem, Rejection]
    assert "kept.zip" in {file.path for file in items[0].record.files}


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", f"{WHERE}/../../x", "a//b", "a\\b", "C:x", "a\nb", "./../x", "/".join("a" * 20), "a/./b"]
)
def test_it_refuses_a_bundle_with_a_name_that_is_not_plain(tmp_path, name):
    write_zip(tmp_path / "a.zip", bundle_files(**{name: b"x"}))
    assert "bundle holds" in reason_of(tmp_path / "a.zip")
    write_tar(tmp_path / "a.tar.gz", [make_member(name, b"x")])
    assert "bundle holds" in reason_of(tmp_path / "a.tar.gz")
    assert not (tmp_path.parent / "x").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE]
)
def test_it_refuses_a_tar_with_anything_but_files(tmp_path, kind):
    write_tar(tmp_path / "a.tar.gz", [make_member("a", type=kind, linkname="/etc/passwd")])
    assert "bundle" in reason_of(tmp_path / "a.tar.gz")


def test_it_refuses_a_zip_with_a_link(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr(info, "/etc/passwd")
    assert "link or a special file" in reason_of(tmp_path / "a.zip")


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("A/x", "a/y"), ("a", "a/b"), ("é", "e\u0301")])
def test_it_refuses_a_bundle_with_names_that_collide(tmp_path, names):
    write_tar(tmp_path / "a.tar.gz", [make_member(name, b"x") for name in names])
    assert "need different names" in reason_of(tmp_path / "a.tar.gz")


def test_it_refuses_a_bundle_that_unpacks_to_too_much(tmp_path):
    write_zip(tmp_path / "a.zip", {"zeros": bytes(8 * 1024 * 1024)})
    assert "unpacks to more" in reason_of(tmp_path / "a.zip")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(8 * 1024 * 1024)))
    assert "bundle" in reason_of(tmp_path / "a.tar.gz")


def test_it_refuses_a_bundle_with_too_many_members_or_too_long_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(grading.bundle, "MAX_MEMBERS", 3)
    assert "more than 3 members" in reason_of(write_zip(tmp_path / "a.zip", bundle_files()))
    monkeypatch.setattr(grading.bundle, "MAX_FILE_BYTES", 3)
    assert "longer than 3 bytes" in reason_of(write_zip(tmp_path / "b.zip", {"a": b"12345"}))


def test_it_refuses_a_tar_with_a_name_that_fills_the_memory(tmp_path):
    write_tar(tmp_path / "a.tar.gz", [make_member("x" * 200_000, b"x")])
    assert "too long" in reason_of(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_it_takes_nothing_from_a_bundle_that_is_cut_or_damaged(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    members = [make_member(f"{WHERE}/{name}", data) for name, data in make_files().items()]
    whole = (write_zip(path, bundle_files()) if ending == "zip" else write_tar(path, members)).read_bytes()
    for data in (b"", b"PK", whole[: len(whole) // 2], whole[:-10], whole[:200] + b"\xff" * 40 + whole[240:]):
        path.write_bytes(data)
        assert "bundle" in reason_of(path)


def test_it_refuses_a_tar_whose_second_header_is_damaged(tmp_path):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as bundle:
        for name in ("a", "b"):
            bundle.addfile(*[make_member(name, b"x")[0]], io.BytesIO(b"x"))
    data = bytearray(plain.getvalue())
    data[1024 + 148 : 1024 + 156] = b"9999999\0"
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(data)))
    assert "bundle is broken" in reason_of(tmp_path / "a.tar.gz")
