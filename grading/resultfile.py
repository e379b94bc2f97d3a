"""``result.json`` and ``environment.json`` as typed fields, for every deck and age.

Files are well formed as a rule, so they are decoded straight into a Struct. What JSON readers silently let through
(NaN, repeated keys, a byte order mark) goes a slower way that keeps a note of it. A score stays the text of the file.

Source: docs/method.md "Records".
"""

import datetime
import json
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from grading.record import SCHEMA_VERSION, Environment, Record, RecordError, Regrade, RunKey, Usage
from grading.runid import check_problem, shown

MAX_RESULT_BYTES = 1024 * 1024
MAX_EXTRA_KEYS = 100
MAX_EXTRA_CHARS = 4000
_NOTHING = Raw(b"null")
_MAX_NAME, _MAX_TEXT = 200, 20_000

_Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class _Result(msgspec.Struct, kw_only=True):
    run_id: str | None = None
    problem: str
    harness: str
    model: str
    reasoning_effort: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    has_solution: bool | None = None
    correct: bool | None = None
    failure_reason: str | None = None
    retryable_infra_failure: bool | None = None
    peak_fraction: Raw = _NOTHING
    template_mutated: bool | None = None
    elapsed_seconds: _Whole | None = None
    total_elapsed_seconds: _Whole | None = None
    check_elapsed_seconds: _Whole | None = None
    benchmark_elapsed_seconds: _Whole | None = None
    check_exit_code: _Whole | None = None
    benchmark_exit_code: _Whole | None = None
    harness_exit_code: _Whole | None = None
    session_complete: bool | None = None
    agent_cuda_disabled: bool | None = None
    gpu_queue_mode: str | None = None
    usage: Raw = _NOTHING
    regrade: Raw = _NOTHING
    regrade_note: str | None = None
    rescore_note: str | None = None
    gpu_name: str | None = None


class _Usage(msgspec.Struct, kw_only=True):
    input_tokens: _Whole | None = None
    output_tokens: _Whole | None = None
    cache_read_tokens: _Whole | None = None
    cache_creation_tokens: _Whole | None = None
    reasoning_tokens: _Whole | None = None
    cost_usd: float | None = None
    total_cost_usd: float | None = None


class _Regrade(msgspec.Struct, kw_only=True):
    at: str | None = None
    host: str | None = None
    gpu_index: _Whole | None = None
    gpu_name: str | None = None
    mode: str | None = None
    contended: Raw = _NOTHING


class _Contended(msgspec.Struct, kw_only=True):
    correct: bool | None = None
    peak_fraction: Raw = _NOTHING


_Table = dict[str, Raw]
_TABLE = msgspec.json.Decoder(_Table)
_DECODERS: dict[type, "msgspec.json.Decoder[Any]"] = {
    kind: msgspec.json.Decoder(kind) for kind in (_Result, _Usage, _Regrade, _Contended, Environment)
}
_KNOWN: dict[type[msgspec.Struct], frozenset[str]] = {
    kind: frozenset(kind.__struct_fields__) for kind in (_Result, _Usage, _Regrade, _Contended)
}
_KEY = re.compile(rb'"[ \t\r\n]*:')
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_NEEDS = (("bool", "true, false or null"), ("int", "a whole number or null"), ("float", "a finite number or null"))


def read_result(data: bytes, key: RunKey, file: str = "result.json") -> Record:
    """Return the record that a ``result.json`` gives by itself: without logs, files and environment.

    key  the run's identity; its run id stands, and another one inside the file becomes ``inner_run_id``
    Raises RecordError that names file, field, value and what is accepted.
    """
    data, table, notes = _open(data, file)
    result = _decode(data, table, _Result, file, "")
    extra = _unknown(table, _Result, file, "")
    usage = _read_usage(result.usage, file, extra)
    regrade = _read_regrade(result.regrade, file, extra)
    _check_extra(extra, notes)
    if not result.model or not result.harness:
        raise RecordError(f"{file}: model and harness are {shown(result.model)}, {shown(result.harness)}; need texts")
    if result.run_id is None:
        notes.append(f"{file}: run_id is absent; the directory's name stands")
    is_other_id = result.run_id is not None and result.run_id != key.run_id
    return Record(
        schema=SCHEMA_VERSION,
        key=key,
        problem=check_problem(result.problem, key.deck, f"{file}: problem"),
        harness=result.harness,
        model=result.model,
        effort=result.reasoning_effort or "",
        has_solution=result.has_solution,
        correct=result.correct,
        failure_reason=result.failure_reason,
        template_mutated=result.template_mutated,
        session_complete=result.session_complete,
        retryable_infra_failure=result.retryable_infra_failure,
        agent_cuda_disabled=result.agent_cuda_disabled,
        check_exit_code=result.check_exit_code,
        benchmark_exit_code=result.benchmark_exit_code,
        harness_exit_code=result.harness_exit_code,
        score_text=_number_text(result.peak_fraction, f"{file}: peak_fraction"),
        started_at=_time(result.started_at, f"{file}: started_at", notes),
        finished_at=_time(result.finished_at, f"{file}: finished_at", notes),
        elapsed_seconds=result.elapsed_seconds,
        total_elapsed_seconds=result.total_elapsed_seconds,
        check_elapsed_seconds=result.check_elapsed_seconds,
        benchmark_elapsed_seconds=result.benchmark_elapsed_seconds,
        gpu_queue_mode=result.gpu_queue_mode,
        usage=usage,
        regrade=regrade,
        regrade_note=result.regrade_note,
        rescore_note=result.rescore_note,
        device_name=(regrade.gpu_name if regrade else None) or result.gpu_name or None,
        inner_run_id=result.run_id if is_other_id else None,
        extra=extra,
        notes=tuple(notes),
    )


def read_environment(data: bytes, file: str = "environment.json") -> Environment:
    """Return what our own grader recorded of its machine; unknown keys are ignored. Raises RecordError."""
    data, table, _ = _open(data, file)
    environment: Environment = _decode(data, table, Environment, file, "")
    return environment


def inner_run_id(data: bytes, file: str = "result.json") -> str | None:
    """Return the run id that a ``result.json`` names, or None. Raises RecordError for a file that is no JSON object."""
    raw = _open(data, file)[1].get("run_id", _NOTHING)
    try:
        return msgspec.json.decode(raw, type=str | None)
    except msgspec.DecodeError as error:
        raise RecordError(f"{file}: run_id is {_short(raw)}; need a text") from error


def _open(data: bytes, file: str) -> tuple[bytes, _Table, list[str]]:
    """Return clean JSON, its top level, and notes on what was odd."""
    if len(data) > MAX_RESULT_BYTES:
        raise RecordError(f"{file} is {len(data)} bytes long; at most {MAX_RESULT_BYTES} are accepted")
    if b"\\u" in data and _NUL.search(data):
        raise RecordError(f"{file} holds a NUL character in a text; need texts without")
    table = _decode_table(data)
    if table is not None and (b"NaN" in data or b"Infinity" in data or _has_repeated_key(data, table)):
        table = None
    if table is not None:
        return data, table, []
    data, notes = _clean(data, file)
    table = _decode_table(data)
    if table is None:
        raise RecordError(f"{file} is not a JSON object; need one of texts, numbers, booleans and objects")
    return data, table, notes


def _decode_table(data: bytes) -> _Table | None:
    try:
        return _TABLE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _has_repeated_key(data: bytes, table: _Table) -> bool:
    """Tell whether there may be one: more ``"…":`` in the text than different keys, one level down included."""
    keys = len(table)
    for raw in table.values():
        text = bytes(raw)
        if text.startswith(b"{"):
            inner = _decode_table(text)
            if inner is None or any(bytes(value).startswith((b"{", b"[")) for value in inner.values()):
                return True
            keys += len(inner)
    return len(_KEY.findall(data)) != keys


def _clean(data: bytes, file: str) -> tuple[bytes, list[str]]:
    """Return the same object without repeated keys and non-numbers, and a note for each of them."""
    notes: list[str] = []
    constants: list[str] = []

    def constant(text: str) -> _NotANumber:
        constants.append(text)
        return _NotANumber(text)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, value in items:
            if name in table:
                notes.append(f"{file}: {shown(name)} is given twice; the last value stands")
            table[name] = value
            if isinstance(value, _NotANumber):
                notes.append(f"{file}: {name[:80]} is {value.text}; read as absent")
                table[name] = None
                constants.pop()
        return table

    try:
        text = data.decode("utf-8-sig")
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=constant, parse_float=_raw_number, parse_int=_raw_number
        )
        cleaned = msgspec.json.encode(value, enc_hook=lambda _: None)
    except UnicodeError as error:
        raise RecordError(f"{file} holds bytes or texts that are not Unicode; need UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file} is not JSON: {error}") from error
    if constants:
        notes.append(f"{file}: a list holds {constants[0]}; read as null")
    if data.startswith(b"\xef\xbb\xbf"):
        notes.append(f"{file}: starts with a byte order mark")
    return cleaned, [note.encode("utf-8", "backslashreplace").decode() for note in notes[:50]]


class _NotANumber:
    def __init__(self, text: str) -> None:
        self.text = text


def _raw_number(text: str) -> Raw:
    return Raw(text.encode())


def _decode(data: bytes | Raw, table: _Table, kind: type[_Struct], file: str, prefix: str) -> _Struct:
    """Return typed fields; texts are free of control characters where they name something."""
    try:
        fields: _Struct = _DECODERS[kind].decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _field_error(table, kind, file, prefix, error) from error
    for name in kind.__struct_fields__:
        value = getattr(fields, name)
        if type(value) is str and value and not (value.isprintable() and len(value) <= _MAX_NAME):
            _check_text(value, f"{file}: {prefix}{name}", is_note=name.endswith("_note"))
    return fields


def _check_text(value: str, field: str, is_note: bool) -> None:
    limit = _MAX_TEXT if is_note else _MAX_NAME
    if len(value) > limit:
        raise RecordError(f"{field} is {len(value)} characters long; at most {limit} are accepted")
    if not is_note and not value.isprintable():
        raise RecordError(f"{field} is {shown(value)}; need printable characters")


def _field_error(table: _Table, kind: type[_Struct], file: str, prefix: str, cause: Exception) -> RecordError:
    """Return the error for the first field that cannot be read by itself."""
    for field in msgspec.structs.fields(kind):
        raw = table.get(field.encode_name)
        name = f"{file}: {prefix}{field.encode_name}"
        if raw is None:
            if field.required:
                return RecordError(f"{name} is absent; need a text")
            continue
        try:
            msgspec.json.decode(raw, type=field.type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return RecordError(f"{name} is {_short(raw)}; need {_accepted(str(field.type))}")
    return RecordError(f"{file} cannot be read: {cause}")


def _accepted(kind: str) -> str:
    return next((text for word, text in _NEEDS if word in kind), "a text")


def _short(raw: Raw) -> str:
    text = bytes(raw).decode("utf-8", "backslashreplace")
    return text if len(text) <= 60 and text.isprintable() else shown(text, 60)


def _inner(raw: Raw, field: str) -> _Table | None:
    if raw == _NOTHING:
        return None
    table = _decode_table(bytes(raw))
    if table is None:
        raise RecordError(f"{field} is {_short(raw)}; need an object or null")
    return table


def _read_usage(raw: Raw, file: str, extra: dict[str, str]) -> Usage:
    table = _inner(raw, f"{file}: usage")
    if not table:
        return Usage()
    usage = _decode(raw, table, _Usage, file, "usage.")
    extra.update(_unknown(table, _Usage, file, "usage."))
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_creation_tokens=usage.cache_creation_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=usage.cost_usd if usage.cost_usd is not None else usage.total_cost_usd,
    )


def _read_regrade(raw: Raw, file: str, extra: dict[str, str]) -> Regrade | None:
    table = _inner(raw, f"{file}: regrade")
    if table is None:
        return None
    regrade = _decode(raw, table, _Regrade, file, "regrade.")
    extra.update(_unknown(table, _Regrade, file, "regrade."))
    inner = _inner(regrade.contended, f"{file}: regrade.contended")
    contended = _Contended()
    if inner is not None:
        contended = _decode(regrade.contended, inner, _Contended, file, "regrade.contended.")
        extra.update(_unknown(inner, _Contended, file, "regrade.contended."))
    return Regrade(
        at=regrade.at,
        host=regrade.host,
        gpu_index=regrade.gpu_index,
        gpu_name=regrade.gpu_name or None,
        mode=regrade.mode,
        contended_correct=contended.correct,
        contended_score_text=_number_text(contended.peak_fraction, f"{file}: regrade.contended.peak_fraction"),
        has_contended=inner is not None,
    )


def _unknown(table: _Table, kind: type[msgspec.Struct], file: str, prefix: str) -> dict[str, str]:
    """Return the keys that the record has no field for, as compact JSON."""
    known = _KNOWN[kind]
    names = [name for name in table if name not in known]
    try:
        return {prefix + name: msgspec.json.format(bytes(table[name]), indent=-1).decode("utf-8") for name in names}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{file}: a key that is not known holds what cannot be read: {error}") from error


def _check_extra(extra: dict[str, str], notes: list[str]) -> None:
    for name in [name for name, text in extra.items() if len(name) > _MAX_NAME or len(text) > MAX_EXTRA_CHARS]:
        notes.append(f"key {shown(name)} left out: {len(extra.pop(name))} characters of at most {MAX_EXTRA_CHARS}")
    for name in list(extra)[MAX_EXTRA_KEYS:]:
        del extra[name]
        notes.append(f"key {shown(name)} left out: more than {MAX_EXTRA_KEYS} keys that are not known")


def _number_text(raw: Raw, field: str) -> str | None:
    text = bytes(raw).decode("ascii", "replace")
    if text == "null":
        return None
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        raise RecordError(f"{field} is {_short(raw)}; need a number of at most 40 characters or null")
    return text


def _time(text: str | None, field: str, notes: list[str]) -> datetime.datetime | None:
    """Return an aware time; one without offset is noted and left out, never guessed."""
    if not text:
        return None
    match = _TIME.fullmatch(text)
    if match is not None and match[2] is None:
        notes.append(f"{field} is {text}, without an offset; read as absent")
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.upper()) if match else None
    except ValueError:
        moment = None
    if moment is None or not 2000 <= moment.year <= 2100:
        raise RecordError(f"{field} is {shown(text)}; need a time such as 2026-08-01T12:00:00+00:00")
    return moment
