"""Signatures of runs, kept in order of receipt, and what each run shares with earlier ones.

A run is signed once. What it shares with earlier runs never changes afterwards, since runs are neither edited nor
deleted; only overlap in time on one machine can be found later, and then the older run is handed back to be assessed
again. So the cost of new runs does not depend on how many are held.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec
from django.db import transaction

from grading.hardware import load_gpus
from grading.integrity.crossrun import (
    CAP,
    NO_NEIGHBOURS,
    VERSION,
    Index,
    Neighbours,
    Signature,
    keys_of,
    probes_of,
    sign,
)
from grading.integrity.twins import typical_ms
from grading.names import find_model, load_models
from grading.problem import load_decks
from grading.record import ArchiveFile, Record, decode
from grading.score import recompute
from grading.source.files import is_source
from leaderboard.models import Blob, Run, SharedKey
from leaderboard.models import Signature as SignatureRow

MAX_GROUP_BYTES = 32 * 1024 * 1024
_MAX_GROUP_RUNS = 100
_CHUNK = 500
_CANDIDATES = 16
_SMALL_FILES = frozenset(
    {
        "check.log",
        "environment.json",
        "gpu_lock.log",
        "cuda_language.json",
        "scratch/cuda_language.json",
        "framework.txt",
    }
)
_DECODER = msgspec.json.Decoder(Signature)
_NEIGHBOURS = msgspec.json.Decoder(Neighbours)


def files_of(records: Iterable[Record], *, only_source: bool = False) -> Iterator[dict[str, bytes]]:
    """Yield, for each record, the bytes by path of the files that rules read; fetched in groups of bounded size."""
    group: list[list[ArchiveFile]] = []
    size = 0
    for record in records:
        wanted = [entry for entry in record.files if _is_wanted(entry, only_source=only_source)]
        group.append(wanted)
        size += sum(entry.size_bytes for entry in wanted)
        if size > MAX_GROUP_BYTES or len(group) >= _MAX_GROUP_RUNS:
            yield from _fetch(group)
            group, size = [], 0
    yield from _fetch(group)


def _is_wanted(entry: ArchiveFile, *, only_source: bool) -> bool:
    if is_source(entry.path):
        return True
    return not only_source and (entry.role == "transcript" or entry.path in _SMALL_FILES)


def _fetch(group: list[list[ArchiveFile]]) -> Iterator[dict[str, bytes]]:
    digests = sorted({entry.digest for wanted in group for entry in wanted})
    held: dict[str, bytes] = {}
    for start in range(0, len(digests), _CHUNK):
        rows = Blob.objects.filter(pk__in=digests[start : start + _CHUNK]).values_list("pk", "content")
        held.update((digest, zlib.decompress(bytes(content))) for digest, content in rows)
    for wanted in group:
        yield {entry.path: held[entry.digest] for entry in wanted if entry.digest in held}


def sign_runs(keys: list[int]) -> tuple[dict[int, tuple[Neighbours, str]], set[int]]:
    """Sign the runs that have no signature yet, in order.

    Returns, by run, its neighbours and their digest, and the older runs whose neighbours changed by the new ones.
    """
    rows = SignatureRow.objects.filter(pk__in=keys).values_list("pk", "neighbours", "neighbours_digest")
    held = {pk: (_NEIGHBOURS.decode(bytes(content)), digest) for pk, content, digest in rows}
    fresh = list(Run.objects.filter(pk__in=[key for key in keys if key not in held]).order_by("pk"))
    if not fresh:
        return held, set()
    records = [decode(bytes(run.record)) for run in fresh]
    signatures = [
        _sign(run, record, files)
        for run, record, files in zip(fresh, records, files_of(records, only_source=True), strict=True)
    ]
    _store_keys(signatures)
    index = Index(_candidates(signatures))
    found = {item.key: index.neighbours(item) for item in signatures}
    SignatureRow.objects.bulk_create(_row(item, found[item.key]) for item in signatures)
    overlapped = {twin.key for neighbours in found.values() for twin in neighbours.overlapping}
    late = _refresh_older(overlapped - set(found))
    return held | {int(key): (neighbours, neighbours.digest) for key, neighbours in found.items()}, late


def sign_earlier(run: int) -> set[int]:
    """Sign whatever was received before a run and has no signature yet, so that order is kept."""
    before = Run.objects.filter(pk__lt=run).order_by("-pk").values_list("pk", "signature").first()
    if before is None or before[1] is not None:
        return set()
    late: set[int] = set()
    keys = list(Run.objects.filter(pk__lt=run, signature=None).order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(keys), _CHUNK):
        with transaction.atomic():
            late |= sign_runs(keys[start : start + _CHUNK])[1]
    return late


def _sign(run: Run, record: Record, files: Mapping[str, bytes]) -> Signature:
    gpu = load_gpus()[record.key.gpu]
    problem = load_decks()[record.key.deck].problems[record.problem]
    entry = find_model(record.model)
    model = entry.slug if entry is not None else record.model
    return sign(
        record,
        files,
        typical_ms(recompute(record, problem, gpu.key, gpu.current).shapes),
        key=str(run.pk),
        order=run.pk,
        model=model,
        author=f"{model} {record.harness} {record.effort}",
        is_baseline=entry is not None and entry.kind == "baseline",
    )


def _hashed(key: tuple[str, object]) -> int:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _store_keys(signatures: list[Signature]) -> None:
    """Store the keys of new runs: the earliest holders of each value only, and no shingles of a form already held."""
    by_run = {item.key: {key: _hashed(key) for key in keys_of(item)} for item in signatures}
    values = {value for keys in by_run.values() for value in keys.values()}
    held = Counter(value for value, _ in _holders(values))
    rows = []
    for item in signatures:
        keys = by_run[item.key]
        form = next((value for key, value in keys.items() if key[0] == "form"), None)
        is_known_form = form is not None and held[form] > 0
        for key, value in keys.items():
            if held[value] < CAP and not (is_known_form and key[0] == "shingle"):
                held[value] += 1
                rows.append(SharedKey(value=value, run_id=int(item.key)))
    SharedKey.objects.bulk_create(rows, batch_size=5000)


def _holders(values: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (value, run) of every stored key among some values."""
    wanted = sorted(values)
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        yield from SharedKey.objects.filter(value__in=chunk).order_by("run").values_list("value", "run")


def _candidates(signatures: list[Signature]) -> list[Signature]:
    """Return the given signatures and those of every stored run that shares enough to be looked at."""
    probes = {item.key: [(key[0], _hashed(key)) for key in probes_of(item)] for item in signatures}
    holders: dict[int, list[int]] = {}
    for value, run in _holders({value for keys in probes.values() for _, value in keys}):
        holders.setdefault(value, []).append(run)
    wanted: set[int] = set()
    for keys in probes.values():
        shingles: Counter[int] = Counter()
        for table, value in keys:
            runs = holders.get(value, [])
            if table != "shingle":
                wanted.update(runs)
            elif len(runs) < CAP:
                shingles.update(runs)
        wanted.update(run for run, _ in shingles.most_common(_CANDIDATES))
    wanted -= {int(item.key) for item in signatures}
    return [*signatures, *(signature for signature, _ in _load(wanted))]


def _load(keys: Iterable[int]) -> Iterator[tuple[Signature, SignatureRow]]:
    wanted = sorted(keys)
    for start in range(0, len(wanted), _CHUNK):
        for row in SignatureRow.objects.filter(pk__in=wanted[start : start + _CHUNK]).order_by("pk"):
            yield _DECODER.decode(bytes(row.content)), row


def _row(signature: Signature, neighbours: Neighbours) -> SignatureRow:
    return SignatureRow(
        run_id=int(signature.key),
        version=current_version(),
        content=msgspec.json.encode(signature),
        neighbours=msgspec.json.encode(neighbours),
        neighbours_digest=neighbours.digest,
    )


def _refresh_older(keys: set[str]) -> set[int]:
    """Give runs that a new one overlaps their new neighbours; return those that changed."""
    held = list(_load(int(key) for key in keys))
    if not held:
        return set()
    index = Index(_candidates([signature for signature, _ in held]))
    changed = []
    for signature, row in held:
        old = _NEIGHBOURS.decode(bytes(row.neighbours))
        new = msgspec.structs.replace(old, overlapping=index.neighbours(signature).overlapping)
        if new.digest != row.neighbours_digest:
            row.neighbours, row.neighbours_digest = msgspec.json.encode(new), new.digest
            changed.append(row)
    SignatureRow.objects.bulk_update(changed, ["neighbours", "neighbours_digest"])
    return {row.pk for row in changed}


def with_scores(neighbours: Neighbours, run: Run) -> Neighbours:
    """Return neighbours with the scores that earlier runs of the same board reported."""
    rows = Run.objects.filter(deck=run.deck_id, gpu=run.gpu_id, problem=run.problem_id, pk__lt=run.pk)
    scores = rows.exclude(reported_text=None).values_list("reported_text", flat=True).distinct()[:2000]
    return msgspec.structs.replace(neighbours, scores=tuple(sorted(set(scores) - {run.reported_text})))


def twins_of(run: Run) -> dict[str, list[tuple[str, float]]]:
    """Return, for people who decide, the runs that share something with a run: kind -> (run, share).

    Never for the public: a run named here may be invisible to it.
    """
    row = SignatureRow.objects.filter(pk=run.pk).first()
    neighbours = _NEIGHBOURS.decode(bytes(row.neighbours)) if row is not None else NO_NEIGHBOURS
    kinds = ("copies", "similar", "same_log", "same_times", "same_seed", "repeats", "overlapping")
    found = {kind: list(getattr(neighbours, kind)) for kind in kinds}
    names = {
        str(other.pk): str(other)
        for other in Run.objects.filter(pk__in={int(twin.key) for twins in found.values() for twin in twins})
    }
    return {kind: [(names[twin.key], twin.share) for twin in twins] for kind, twins in found.items() if twins}


def forget_all() -> None:
    """Delete every signature; the next recompute builds them again in order of receipt."""
    SharedKey.objects.all().delete()
    SignatureRow.objects.all().delete()


@cache
def current_version() -> str:
    """Return what signatures depend on besides their runs: this code, and which strings mean one model."""
    models = sorted((entry.slug, entry.kind, sorted(entry.strings)) for entry in load_models().values())
    return f"{VERSION}.{hashlib.sha256(msgspec.json.encode(models)).hexdigest()[:12]}"


def is_outdated() -> bool:
    """Tell whether any signature was made by other code or another catalogue of models."""
    return SignatureRow.objects.exclude(version=current_version()).exists()


__all__ = [
    "files_of",
    "forget_all",
    "is_outdated",
    "sign_earlier",
    "sign_runs",
    "twins_of",
    "with_scores",
]
