"""What one run shares with other runs: signatures, an index over them, and the neighbours that it finds.

A `Signature` is everything that cross-run rules need of a run, so that no rule ever compares runs pairwise. The
`Index` is a set of hash tables with capped entries: adding or looking up a run costs the same whatever the number of
runs. Only runs that were received *earlier* count as an original, so that nobody can make an older result suspect by
sending a copy of it; overlap in time on one machine is symmetric.

Source: docs/method.md "Findings", `source.duplicate`.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from grading.moments import events_of
from grading.record import Log, Measurement, Record
from grading.source.shingles import Sketch, deck_shingles, shared_share, sketch_source, source_digests

VERSION = "1"
CAP = 64
_MIN_SHINGLES = 12
_MIN_DIGITS = 12
_SIMILAR = 0.40
_DIGITS = re.compile(r"[1-9][0-9]*")


class Signature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What cross-run rules know of one run.

    order       position in which archives were received; a smaller one is earlier
    author      model, harness and effort; ``model`` is the folded model alone
    source      digest of the solution with its sidecars, ``form`` of the same without comments, layout and names
    times       digest of every digit that the solution's shape lines print; None where they hold too few of them
    typical_ms  geometric mean of the shapes' times
    machine     device UUID, or host and GPU index; ``busy`` is the benchmark's first and last moment there, in seconds
    """

    key: str
    order: int
    problem: str
    gpu: str
    model: str
    author: str
    is_baseline: bool = False
    source: str | None = None
    form: str | None = None
    sketch: Sketch | None = None
    log: str | None = None
    times: str | None = None
    typical_ms: float | None = None
    seed: str | None = None
    machine: str | None = None
    busy: tuple[float, float] | None = None


class Twin(msgspec.Struct, frozen=True):
    """Another run that shares something; ``share`` is the share of this run's shingles that the other one holds."""

    key: str
    is_same_author: bool
    is_same_model: bool
    is_same_board: bool
    is_same_source: bool
    is_same_form: bool = False
    share: float = 1.0
    typical_ms: float | None = None


class Neighbours(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about one run from others. Each list holds earlier runs only, except ``overlapping``.

    scores  what earlier runs of the same board reported; given only where a transcript can be compared with them
    """

    copies: tuple[Twin, ...] = ()
    similar: tuple[Twin, ...] = ()
    same_log: tuple[Twin, ...] = ()
    same_times: tuple[Twin, ...] = ()
    same_seed: tuple[Twin, ...] = ()
    repeats: tuple[Twin, ...] = ()
    overlapping: tuple[Twin, ...] = ()
    scores: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 hex digest of everything here."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


NO_NEIGHBOURS = Neighbours()


def sign(record: Record, files: Mapping[str, bytes], typical_ms: float | None, **identity: object) -> Signature:
    """Return the signature of a run.

    files     the run's source files by path, as `Context.files` holds them
    identity  key, order, model, author and is_baseline, as the caller knows them
    """
    source, form = source_digests(files)
    benchmark = record.benchmark
    seeds = record.check.named("PROPERTY_SEED") if record.check is not None else ()
    return msgspec.convert(
        {
            **identity,
            "problem": f"{record.key.deck}/{record.problem}",
            "gpu": record.key.gpu,
            "source": source,
            "form": form,
            "sketch": sketch_source(files, deck_shingles(record.key.deck, record.problem)),
            "log": benchmark.digest if benchmark is not None and _digits(benchmark) >= _MIN_DIGITS else None,
            "times": _times_digest(benchmark),
            "typical_ms": typical_ms,
            "seed": seeds[0].text if len(seeds) == 1 else None,
            "machine": _machine(record),
            "busy": _busy(record),
        },
        Signature,
    )


def _solution_lines(log: Log | None) -> Iterable[Measurement]:
    measurements = log.measurements if log is not None else ()
    return (item for item in measurements if item.variant == "solution" and item.source in ("line", "event"))


def _digits(log: Log | None) -> int:
    """Count the significant digits that a log's shape lines print, the most precise reading of each line only."""
    total = 0
    for item in _solution_lines(log):
        total += max((len(_significant(reading.text)) for reading in item.readings), default=0)
    return total


def _significant(text: str) -> str:
    found = _DIGITS.search(text.replace(".", ""))
    return found.group() if found else ""


def _times_digest(log: Log | None) -> str | None:
    if log is None or _digits(log) < _MIN_DIGITS:
        return None
    times = ("ms", "wall_s", "decode_wall_s", "tok_s", "sps")
    words = [
        f"{item.shape} {item.source} {reading.quantity}={reading.text}"
        for item in _solution_lines(log)
        for reading in item.readings
        if reading.quantity in times or reading.quantity in ("tflops", "gbps")
    ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest() if len(words) > 1 else None


def _machine(record: Record) -> str | None:
    if record.environment is not None and record.environment.device_uuid:
        return record.environment.device_uuid
    regrade = record.regrade
    if regrade is not None and regrade.host and regrade.gpu_index is not None:
        return f"{regrade.host}#{regrade.gpu_index}"
    return None


def _busy(record: Record) -> tuple[float, float] | None:
    """Return the first and last moment of the benchmark's own events, where the log has dated ones."""
    moments = [event.at.timestamp() for event in events_of(record.benchmark) if event.at is not None and event.is_zoned]
    return (min(moments), max(moments)) if len(moments) > 1 else None


class Index:
    """Signatures by what they share. Every list is capped at the earliest runs, and a lookup never scans."""

    def __init__(self, signatures: Iterable[Signature] = ()) -> None:
        self._by: dict[str, dict[object, list[Signature]]] = defaultdict(lambda: defaultdict(list))
        for signature in sorted(signatures, key=lambda item: item.order):
            self.add(signature)

    def add(self, signature: Signature) -> None:
        """Add one run; runs are added in the order in which they were received."""
        for table, value in keys_of(signature):
            held = self._by[table][value]
            if len(held) < CAP:
                held.append(signature)

    def neighbours(self, run: Signature) -> Neighbours:
        """Return what earlier runs share with a run, and which runs used its machine at the same time."""
        copies = [item for item in self._earlier("form", run.form, run) if item.problem == run.problem]
        others = {item.key for item in copies}
        similar = [twin for twin in self._similar(run) if twin.key not in others]
        return Neighbours(
            copies=_twins(run, copies),
            similar=tuple(similar),
            same_log=_twins(run, self._earlier("log", run.log, run)),
            same_times=_twins(run, self._earlier("times", run.times, run)),
            same_seed=_twins(run, [item for item in self._earlier("seed", run.seed, run) if item.log != run.log]),
            repeats=_twins(run, self._earlier("repeat", _repeat_key(run), run)),
            overlapping=_twins(run, self._overlapping(run)),
        )

    def _earlier(self, table: str, value: object, run: Signature) -> list[Signature]:
        held = self._by[table].get(value, ()) if value is not None else ()
        return [item for item in held if item.order < run.order and item.key != run.key]

    def _similar(self, run: Signature) -> list[Twin]:
        if run.sketch is None or len(run.sketch.hashes) < _MIN_SHINGLES:
            return []
        counts: dict[str, int] = defaultdict(int)
        found: dict[str, Signature] = {}
        for value in run.sketch.probes():
            held = self._by["shingle"].get((run.problem, value), ())
            if len(held) >= CAP:
                continue
            for item in held:
                if item.order < run.order and item.key != run.key:
                    counts[item.key] += 1
                    found[item.key] = item
        best = sorted(found, key=lambda key: (-counts[key], found[key].order))[:CAP]
        shares = [(shared_share(run.sketch, found[key].sketch), found[key]) for key in best]
        near = sorted(((share, item) for share, item in shares if share >= _SIMILAR), key=lambda pair: -pair[0])
        return [msgspec.structs.replace(_twin(run, item), share=round(share, 3)) for share, item in near[:8]]

    def _overlapping(self, run: Signature) -> list[Signature]:
        found: dict[str, Signature] = {}
        for hour in _hours(run):
            for item in self._by["busy"].get(hour, ()):
                if item.key != run.key and item.busy and run.busy and _overlap(item.busy, run.busy):
                    found[item.key] = item
        return sorted(found.values(), key=lambda item: item.order)


def keys_of(run: Signature) -> Iterator[tuple[str, object]]:
    """Yield the table and the value under which an index holds a run."""
    for table in ("form", "log", "times", "seed"):
        value = getattr(run, table)
        if value is not None:
            yield table, value
    repeat = _repeat_key(run)
    if repeat is not None:
        yield "repeat", repeat
    for hour in _hours(run):
        yield "busy", hour
    for value in run.sketch.postings() if run.sketch is not None else ():
        yield "shingle", (run.problem, value)


def probes_of(run: Signature) -> Iterator[tuple[str, object]]:
    """Yield the table and the value under which runs that share something with this one are held."""
    yield from (key for key in keys_of(run) if key[0] != "shingle")
    for value in run.sketch.probes() if run.sketch is not None else ():
        yield "shingle", (run.problem, value)


def _repeat_key(run: Signature) -> tuple[str, ...] | None:
    return (run.source, run.problem, run.gpu, run.author) if run.source and run.typical_ms else None


def _hours(run: Signature) -> Iterable[tuple[str, int]]:
    if run.machine is None or run.busy is None:
        return ()
    first, last = int(run.busy[0] // 3600), int(run.busy[1] // 3600)
    return ((run.machine, hour) for hour in range(first, min(last, first + 24) + 1))


def _overlap(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def _twins(run: Signature, items: Iterable[Signature]) -> tuple[Twin, ...]:
    return tuple(_twin(run, item) for item in list(items)[:8])


def _twin(run: Signature, other: Signature) -> Twin:
    return Twin(
        key=other.key,
        is_same_author=other.author == run.author,
        is_same_model=other.model == run.model,
        is_same_board=other.gpu == run.gpu and other.problem == run.problem,
        is_same_source=other.source == run.source,
        is_same_form=other.form == run.form and run.form is not None,
        typical_ms=other.typical_ms,
    )
