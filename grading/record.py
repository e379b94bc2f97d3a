"""The typed record: what one archived run says, in whatever dialect it was written.

A record holds what the files say, not what is true: numbers stay as the text that was printed, with file and line,
and a contradiction between two files is kept for the integrity rules to find. Nothing missing becomes a zero or an
empty text: absent is ``None``.

Source: docs/method.md "Records".
"""

import datetime
import re
from typing import Literal

import msgspec

SCHEMA_VERSION = 1
RUN_ID = re.compile(r"(\d{8}_\d{6})_([a-z0-9-]+)_(.+)", re.ASCII)
MAX_RUN_ID = 200

Role = Literal["result", "benchmark", "check", "solution", "sidecar", "environment", "transcript", "other"]


class RecordError(ValueError):
    """A run that cannot become a record; the message names file, field, value and what is accepted."""


class RunKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a run. Run ids repeat across GPUs, so the three together are the key."""

    deck: str
    gpu: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.deck}/{self.gpu}/{self.run_id}"


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """One printed number: the quantity, the text as printed, and its line in the file."""

    quantity: str
    text: str
    line: int


class Measurement(msgspec.Struct, frozen=True, array_like=True):
    """One shape's timing in one variant, as one line (or event line) of a log gave it.

    shape    the text that names the shape in the log: an index, or a key value such as a context length
    variant  ``solution``, ``eager``, ``compiled``, ``sota`` or whatever word the log used
    source   ``line`` for a result line, ``event`` for an event line, ``fraction`` for a fraction line, ``trial`` for
             one of several repeats of the same shape
    """

    shape: str
    variant: str
    source: Literal["line", "event", "fraction", "trial"]
    readings: tuple[Reading, ...]


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """A scored or deciding line of a log: ``peak_fraction``, ``RESULT``, ``PASS``, ``FAIL``, ``PROPERTY_SEED``, …"""

    name: str
    text: str
    line: int


class LogFault(msgspec.Struct, frozen=True, array_like=True):
    """A place in a log that breaks the grammar, with the reason."""

    reason: str
    line: int
    is_hostile: bool = False


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark or check log, read line by line."""

    file: str
    digest: str
    dialect: str
    measurements: tuple[Measurement, ...] = ()
    markers: tuple[Marker, ...] = ()
    faults: tuple[LogFault, ...] = ()
    device: str | None = None

    def named(self, name: str) -> tuple[Marker, ...]:
        """Return all markers of a name, in order; a marker that must be unique is judged by the rules, not here."""
        return tuple(marker for marker in self.markers if marker.name == name)


class ArchiveFile(msgspec.Struct, frozen=True):
    """One file of an archive: its path inside the run directory, SHA-256 hex digest, size in bytes and role."""

    path: str
    digest: str
    size_bytes: int
    role: Role


class Regrade(msgspec.Struct, frozen=True, kw_only=True):
    """A later, isolated grading pass that replaced the values of the first one."""

    at: str | None = None
    host: str | None = None
    gpu_index: int | None = None
    gpu_name: str | None = None
    mode: str | None = None
    contended_correct: bool | None = None
    contended_score_text: str | None = None
    has_contended: bool = False


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent session used, as far as it was recorded; each value may be absent."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a run recorded of the machine it ran on (our own archives; older ones have none)."""

    device_name: str | None = None
    device_uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    triton: str | None = None
    method_version: str | None = None
    problem_version: str | None = None
    peak_version: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, typed. Text fields are as recorded; `notes` holds what the reader had to decide or leave out."""

    schema: int
    key: RunKey
    problem: str
    harness: str
    model: str
    effort: str = ""
    has_solution: bool | None = None
    correct: bool | None = None
    failure_reason: str | None = None
    template_mutated: bool | None = None
    session_complete: bool | None = None
    retryable_infra_failure: bool | None = None
    agent_cuda_disabled: bool | None = None
    check_exit_code: int | None = None
    benchmark_exit_code: int | None = None
    harness_exit_code: int | None = None
    score_text: str | None = None
    started_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    elapsed_seconds: int | None = None
    total_elapsed_seconds: int | None = None
    check_elapsed_seconds: int | None = None
    benchmark_elapsed_seconds: int | None = None
    gpu_queue_mode: str | None = None
    usage: Usage = Usage()
    regrade: Regrade | None = None
    regrade_note: str | None = None
    rescore_note: str | None = None
    environment: Environment | None = None
    device_name: str | None = None
    benchmark: Log | None = None
    check: Log | None = None
    framework: str | None = None
    inner_run_id: str | None = None
    files: tuple[ArchiveFile, ...] = ()
    extra: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def encode(record: Record) -> bytes:
    """Return the record as JSON bytes that `decode` reads back to an equal record."""
    return _ENCODER.encode(record)


def decode(data: bytes) -> Record:
    """Return the record that `encode` wrote. Raises RecordError for anything else."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise RecordError(f"stored record: {error}") from error


def model_slug(model: str) -> str:
    """Return a model string as run ids spell it: the characters ``/ : [ ]`` and space become ``_``."""
    return re.sub(r"[/:\[\] ]", "_", model)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Record)
