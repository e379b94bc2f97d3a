"""Run directories: every file of one, and the record they give together.

Source: docs/method.md "Archives".
"""

import gzip
import hashlib
import io
import os
import stat
import zlib
from pathlib import Path

import msgspec

from grading.logs import read_benchmark, read_check
from grading.record import (
    SCHEMA_VERSION,
    ArchiveFile,
    Environment,
    Log,
    LogFault,
    Marker,
    Record,
    RecordError,
    Role,
    RunKey,
)
from grading.resultfile import read_environment, read_result
from grading.runid import parse_run_id, shown

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_RUN_BYTES = 256 * 1024 * 1024
MAX_RUN_FILES = 5000
MAX_DEPTH = 12
EVIDENCE, PACKED_EVIDENCE = "evidence.json", "evidence.json.gz"
RUN_MARKS = ("result.json", "meta.log")
_FIRST_READ_BYTES = 16 * 1024
_SOURCES = (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx")
_ROLES: dict[str, Role] = {
    "result.json": "result",
    "benchmark.log": "benchmark",
    "check.log": "check",
    "solution.py": "solution",
    "environment.json": "environment",
    "framework.txt": "sidecar",
    "cuda_language.json": "sidecar",
    "transcript.jsonl": "transcript",
    "codex_session.jsonl": "transcript",
    "agent.log": "transcript",
    "agent.err": "transcript",
}


class Content:
    """The files of one run directory: bytes and digests by path, and what was left out with the reason."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.left_out: list[tuple[str, str]] = []
        self.size_bytes = 0

    def add(self, path: str, data: bytes) -> None:
        self.size_bytes += len(data)
        if self.size_bytes > MAX_RUN_BYTES or len(self.files) >= MAX_RUN_FILES:
            raise RecordError(f"run holds more than {MAX_RUN_FILES} files or {MAX_RUN_BYTES} bytes")
        self.files[path] = data
        self.digests[path] = hashlib.sha256(data).hexdigest()

    def blobs(self) -> dict[str, bytes]:
        """Return the files' bytes by digest."""
        return {self.digests[path]: data for path, data in self.files.items()}


def read_directory(root: Path, key: RunKey) -> tuple[Record, Content]:
    """Return the record of a run directory with the content it was read from.

    Raises RecordError when it is no run that can become a record, OSError when it cannot be listed.
    """
    content = Content()
    _collect(str(root), "", content, depth=0)
    if "result.json" in content.files:
        record = read_result(content.files["result.json"], key)
    elif "meta.log" in content.files:
        record = _read_meta(content, key)
    else:
        refused = dict(content.left_out)
        reason = next((f"{name} {refused[name]}" for name in RUN_MARKS if name in refused), None)
        raise RecordError(reason or f"run directory holds neither {' nor '.join(RUN_MARKS)}")
    return _complete(record, content), content


def _collect(folder: str, prefix: str, content: Content, depth: int) -> None:
    """Read every file below a directory; what is no plain file, or too large, is left out with its reason."""
    if depth > MAX_DEPTH:
        content.left_out.append((prefix.rstrip("/"), f"is more than {MAX_DEPTH} directories deep"))
        return
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        name = entry.name
        path = prefix + name
        if name.startswith("."):
            continue
        if not name.isprintable():
            content.left_out.append((path, "has a name that is not printable UTF-8"))
        elif entry.is_dir(follow_symlinks=False):
            _collect(entry.path, path + "/", content, depth + 1)
        else:
            try:
                data = read_plain_file(entry.path)
                if name == PACKED_EVIDENCE:
                    path, data = prefix + EVIDENCE, unpack_evidence(data)
                    if any(other.name == EVIDENCE for other in found):
                        raise RecordError(f"stands packed beside {EVIDENCE}, which is taken")
            except RecordError as error:
                content.left_out.append((prefix + name, str(error)))
            else:
                content.add(path, data)


def unpack_evidence(data: bytes) -> bytes:
    """Return packed evidence as the grader wrote it. Raises RecordError for what is no gzip file."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            found = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"is no gzip file: {error}") from error
    if len(found) > MAX_FILE_BYTES:
        raise RecordError(f"is more than {MAX_FILE_BYTES} bytes long when unpacked")
    return found


def pack_evidence(root: Path) -> None:
    """Pack a run directory's evidence; the same evidence always gives the same bytes."""
    plain = root / EVIDENCE
    (root / PACKED_EVIDENCE).write_bytes(gzip.compress(plain.read_bytes(), 9, mtime=0))
    plain.unlink()


def read_plain_file(path: str | Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return a plain file's bytes. Raises RecordError for a link, a special file or one above the limit."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RecordError(f"cannot be opened as a plain file: {cause(error)}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise RecordError("is a link or a special file; need a plain file")
        if status.st_size > limit:
            raise RecordError(f"is {status.st_size} bytes long; at most {limit} are read")
        data = os.read(handle, _FIRST_READ_BYTES)
        if len(data) < _FIRST_READ_BYTES:
            return data
        parts, size = [data], len(data)
        while data := os.read(handle, min(max(status.st_size - size, _FIRST_READ_BYTES), 1024 * 1024)):
            parts.append(data)
            size += len(data)
            if size > limit:
                raise RecordError(f"grew while it was read; at most {limit} bytes are read")
        return b"".join(parts)
    finally:
        os.close(handle)


def _complete(record: Record, content: Content) -> Record:
    """Return the record with logs, files, environment and language label."""
    files = content.files
    environment: Environment | None = None
    if "environment.json" in files:
        environment = read_environment(files["environment.json"])
    framework, notes = _framework(files)
    notes += tuple(f"{printable(name)} left out: {reason}" for name, reason in sorted(content.left_out)[:50])
    return msgspec.structs.replace(
        record,
        benchmark=_log(content, "benchmark.log") or record.benchmark,
        check=_log(content, "check.log") or record.check,
        environment=environment,
        device_name=(environment.device_name if environment else None) or record.device_name,
        framework=framework,
        files=tuple(
            ArchiveFile(path, content.digests[path], len(files[path]), _role(path, record)) for path in sorted(files)
        ),
        notes=record.notes + notes,
    )


def _log(content: Content, name: str) -> Log | None:
    data = content.files.get(name)
    if data is None:
        reason = next((why for path, why in content.left_out if path == name), None)
        return Log(file=name, digest="", dialect="none", faults=(LogFault(reason, 0),)) if reason else None
    read = read_benchmark if name == "benchmark.log" else read_check
    return read(data, name, content.digests[name])


def _framework(files: dict[str, bytes]) -> tuple[str | None, tuple[str, ...]]:
    for path in ("framework.txt", "scratch/framework.txt"):
        if path in files:
            label = files[path][:100].decode("utf-8", "replace").strip()
            if label and label.replace("+", "_").isidentifier() and label.isascii():
                return label, ()
            return None, (f"{path} is {shown(label, 40)}; need one label such as triton",)
    return None, ()


def _role(path: str, record: Record) -> Role:
    name = path.rpartition("/")[2]
    if path == name:
        if name == "meta.log" and record.key.deck == "multi":
            return "result"
        return _ROLES.get(name, "sidecar" if name.endswith(_SOURCES) else "other")
    if path.startswith("scratch/"):
        return "sidecar"
    if path.startswith("ws/"):
        is_solution = name == "solution.py" and path.split("/")[-2] == record.problem
        return "solution" if is_solution else "sidecar"
    return "other"


def _read_meta(content: Content, key: RunKey) -> Record:
    """Return the record of a run of the multi deck, which has no ``result.json``."""
    parts = parse_run_id(key.run_id, key.deck)
    log = read_benchmark(content.files["meta.log"], "meta.log", content.digests["meta.log"])
    scores = log.named("peak_fraction") + log.named("speedup")
    checks = log.named("check")
    ids = {marker.text for marker in log.named("agent_start") + log.named("agent_done")} - {key.run_id}
    notes = ["the model is known as the run id spells it"]
    if len(scores) > 1 or len(checks) > 1:
        notes.append(f"meta.log: {len(scores)} score lines and {len(checks)} check lines; need one of each")
    return Record(
        schema=SCHEMA_VERSION,
        key=key,
        problem=parts.problem,
        harness=parts.harness,
        model=parts.model_slug,
        has_solution=not log.named("no_solution"),
        correct=checks[0].text == "PASS" if len(checks) == 1 else None,
        harness_exit_code=_exit_code(log.named("agent_exit")),
        score_text=scores[0].text if len(scores) == 1 else None,
        device_name=log.device,
        benchmark=log,
        check=msgspec.structs.replace(
            log, dialect="meta", measurements=(), markers=tuple(Marker(item.text, "", item.line) for item in checks)
        ),
        inner_run_id=min(ids, default=None),
        notes=tuple(notes),
    )


def _exit_code(markers: tuple[Marker, ...]) -> int | None:
    return int(markers[0].text) if len(markers) == 1 else None


def printable(text: str) -> str:
    """Return a path as text that any encoder takes: escaped where it is not printable."""
    return text if text.isprintable() else ascii(text)[1:-1]


def cause(error: OSError | ValueError) -> str:
    """Return why the system refused a file, without paths."""
    return (error.strerror or "unknown error").lower() if isinstance(error, OSError) else str(error)
