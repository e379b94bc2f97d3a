"""Timing rules T1 to T9, as pure functions on recorded samples.

The event time is the worker's claim; the outside time is the warden's own clock from ``go`` to the oracle's copy of the
answer, less the time for which the oracle held the device, less the same protocol with a call that does nothing. On a
processor only T1 is judged: its clocks are shared with everything else on the host, so a spread says nothing about the
candidate.

Source: docs/grader.md "Timing rules".
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from grading.evidence import Call, ShapeEvidence

US = 1000.0
OUTSIDE_SLACK_NS = 60 * US
OUTSIDE_SLACK_CPU_NS = 5000 * US
SETTLE_SLACK_NS, SETTLE_SHARE, SETTLE_OF_CLAIM = 30 * US, 0.25, 0.05
OUTSIDE_FAIL, OUTSIDE_AUDIT = 1.5, 1.25
SPREAD, CLUSTER_GAP, CLUSTER_SHARE = 1.25, 1.3, 0.1
AGREES, AGREES_SLACK_MS, SLOWER = 1.05, 0.003, 1.15
PARITY, ROTATED, DRIFT = 1.25, 1.1, 0.10
STALL_NS = 60 * US
# Two measurements of one honest kernel: this share on calls longer than this, the printed intervals on shorter ones.
REPEATS_WITHIN, LONG_MS = 0.02, 0.05
DECK_LEAST, DECK_SLACK_NS = 0.95, 2 * US
FLOOR_FAIL, FLOOR_AUDIT = 0.97, 1.09
_LEAST = 8
# Of the time that a call is held, so much more without the hold means that its launches did not fit in.
LAUNCH_SHARE = 0.6
_LEAST_UNHELD = 4
TimingWord = Literal["integrity", "needs_audit", "not_reproduced", "verified_note", "inconclusive"]


class TimingRule(msgspec.Struct, frozen=True):
    """A timing rule that fired."""

    rule: str
    word: TimingWord
    message: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one shape in milliseconds: the claims' median, mean and percentiles, and the outside median.

    median_ms  of the device alone: the host's launches ran ahead; the time that is judged and compared
    spread_ms  what the outside median may be off by: how far calls that do nothing lie apart, median to 95th percentile
    deck_ms    median of calls timed on an idle device, the host's launches inside; None where there were none. A log
               prints it; with two processes the host's part reads higher than in a deck's single one
    """

    median_ms: float
    mean_ms: float
    p5_ms: float
    p95_ms: float
    outside_ms: float
    noop_ms: float
    samples: int
    deck_ms: float | None = None
    spread_ms: float = 0.0


def summarise(shape: ShapeEvidence) -> Summary | None:
    """Return the times of a shape, or None when no timed call came to an answer."""
    timed = calls_of(shape, "timed")
    if not timed or not shape.noop_snap_ns:
        return None
    claims = sorted(call.claim_ns / 1e6 for call in timed)
    noops = sorted(noops_ns(shape))
    noop = statistics.median(noops)
    return Summary(
        median_ms=statistics.median(claims),
        mean_ms=statistics.fmean(claims),
        p5_ms=quantile(claims, 0.05),
        p95_ms=quantile(claims, 0.95),
        outside_ms=(statistics.median(map(snap_ns, timed)) - noop) / 1e6,
        noop_ms=noop / 1e6,
        samples=len(claims),
        deck_ms=statistics.median(call.claim_ns for call in deck) / 1e6
        if (deck := calls_of(shape, "as_deck"))
        else None,
        spread_ms=(quantile(noops, 0.95) - quantile(noops, 0.5)) / 1e6,
    )


def do_agree(first: Summary, second: Summary) -> bool:
    """Tell whether two times of one shape are the same: within 2 % above 50 us, within each other's interval below."""
    if first.median_ms > LONG_MS:
        return abs(second.median_ms / first.median_ms - 1) <= REPEATS_WITHIN
    return first.p5_ms <= second.median_ms <= first.p95_ms and second.p5_ms <= first.median_ms <= second.p95_ms


def judge_timing(shape: ShapeEvidence, published_ms: Sequence[float | None], *, is_gpu: bool) -> Iterator[TimingRule]:
    """Yield the timing rules that fire on one shape of one pass."""
    timed = calls_of(shape, "timed")
    if len(timed) < _LEAST or len(shape.noop_snap_ns) < 3:
        return
    yield from judge_outside(timed, noops_ns(shape), OUTSIDE_SLACK_NS if is_gpu else OUTSIDE_SLACK_CPU_NS)
    if not is_gpu:
        return
    yield from judge_settle(timed, shape)
    soft: Callable[[Iterable[TimingRule]], Iterator[TimingRule]] = _softened if is_launch_bound(shape) else iter
    yield from soft(judge_distribution([call.claim_ns for call in _unstalled(timed)]))
    yield from soft(judge_classes(shape))
    yield from judge_halves([call.claim_ns for call in timed])
    yield from judge_as_deck(shape)
    if shape.floor_ms:
        yield from judge_floor(statistics.median(call.claim_ns for call in timed) / 1e6, shape.floor_ms)
    if published_ms and published_ms[0] is not None:
        yield from soft(judge_agreement(statistics.median(call.claim_ns for call in timed) / 1e6, published_ms[0]))


def snap_ns(call: Call) -> int:
    """Return the outside time of a call from the end of its hold on."""
    return call.snap_ns - call.held_ns


def noops_ns(shape: ShapeEvidence) -> list[int]:
    """Return the outside times of the calls that do nothing, each from the end of its hold on."""
    held = shape.noop_held_ns or [0] * len(shape.noop_snap_ns)
    return [snap - hold for snap, hold in zip(shape.noop_snap_ns, held, strict=True)]


def is_launch_bound(shape: ShapeEvidence) -> bool:
    """Tell whether the hold was too short for the host's launches, by the warden's clock alone.

    Some calls are not held, at places that the candidate does not know. Where they take longer than the others by most
    of the hold, the launches went on beyond it, and the times follow the host, which others may share.
    """
    timed, unheld = calls_of(shape, "timed"), calls_of(shape, "unheld")
    if len(unheld) < _LEAST_UNHELD or not timed:
        return False
    more = statistics.median(map(snap_ns, unheld)) - statistics.median(map(snap_ns, timed))
    return more > LAUNCH_SHARE * statistics.median(call.held_ns for call in timed)


def _softened(rules: Iterable[TimingRule]) -> Iterator[TimingRule]:
    """Yield rules as they read where the host's launches make the time: no audit, no word on a published time."""
    words: dict[str, TimingWord] = {"needs_audit": "verified_note", "not_reproduced": "inconclusive"}
    for item in rules:
        message = f"{item.message}; launches of this host outlast the hold"
        yield msgspec.structs.replace(item, word=words.get(item.word, item.word), message=message)


def judge_outside(
    timed: Sequence[Call], noops: Sequence[int], slack_ns: float = OUTSIDE_SLACK_NS
) -> Iterator[TimingRule]:
    """T1: the outside clock may not exceed the claim by more than the protocol's own spread explains."""
    noop = sorted(noops)
    spread = quantile(noop, 0.95) - quantile(noop, 0.5)
    slack = slack_ns + spread
    event = statistics.median(call.claim_ns for call in timed)
    outside = statistics.median(map(snap_ns, timed)) - quantile(noop, 0.5)
    message = f"claimed {event / 1e6:.4f} ms, outside clock {outside / 1e6:.4f} ms, slack {slack / 1e6:.4f} ms"
    if outside > OUTSIDE_FAIL * event + slack:
        yield TimingRule("T1.outside", "integrity", message)
    elif outside > OUTSIDE_AUDIT * event + slack:
        yield TimingRule("T1.outside", "needs_audit", message)


def judge_settle(timed: Sequence[Call], shape: ShapeEvidence) -> Iterator[TimingRule]:
    """T8: work that outlives ``done`` shows as a longer wait for the oracle's copy.

    An audit, not an accusation. Read on an H200: the copy costs 160 to 200 us, most of it the change of contexts, up to
    64 us more after a call that moved much memory, hence the share, and up to 140 us more after calls of 13 to 25 ms,
    hence that of the claim. T1 sees the same wait as time, with a wider slack.
    """
    waits = statistics.median(call.snap_ns - call.done_ns for call in timed)
    pairs = zip(shape.noop_snap_ns, shape.noop_done_ns, strict=True)
    plain = statistics.median(snap - done for snap, done in pairs)
    claim = statistics.median(call.claim_ns for call in timed)
    if waits - plain > SETTLE_SLACK_NS + SETTLE_SHARE * plain + SETTLE_OF_CLAIM * claim:
        excess = (waits - plain) / US
        yield TimingRule("T8.settle", "needs_audit", f"the answer settled {excess:.0f} us later than with a no-op")


def _unstalled(timed: Sequence[Call]) -> Sequence[Call]:
    """Return the calls in which the host launched in time: a stall shows on the outside clock beyond the claim."""
    rests = [call.done_ns - call.held_ns - call.claim_ns for call in timed]
    most = statistics.median(rests) + STALL_NS
    kept = [call for call, rest in zip(timed, rests, strict=True) if rest <= most]
    return kept if len(kept) >= _LEAST else timed


def judge_distribution(claims_ns: Sequence[float]) -> Iterator[TimingRule]:
    """T2: a mean far above the median, or two clusters, means that calls do not all do the same work."""
    ordered = sorted(claims_ns)
    middle = statistics.median(ordered)
    if middle > 0 and statistics.fmean(ordered) / middle > SPREAD:
        yield TimingRule("T2.spread", "needs_audit", f"mean over median is {statistics.fmean(ordered) / middle:.2f}")
    elif (split := find_split(ordered)) is not None:
        yield TimingRule(
            "T2.clusters", "needs_audit", f"two clusters of times, {split:.0%} of the calls in the lower one"
        )


def find_split(ordered: Sequence[float]) -> float | None:
    """Return the lower cluster's share when sorted times fall into two clusters that each hold a tenth, else None."""
    least = max(2, int(len(ordered) * CLUSTER_SHARE))
    for place in range(least, len(ordered) - least + 1):
        low, high = ordered[place - 1], ordered[place]
        if low > 0 and high / low > CLUSTER_GAP:
            return place / len(ordered)
    return None


def judge_classes(shape: ShapeEvidence) -> Iterator[TimingRule]:
    """T4, T5, T7: value classes, rotating addresses and known content against nominal content at one address.

    A class differs when its median lies beyond the ratio *and* outside what nine in ten of the nominal calls took:
    short calls are bound by the host's launches, which vary by more than the ratios on their own.
    """
    times = {group: _median_of(shape, group) for group in ("timed", "stress", "structural", "rotated", "recalled")}
    nominal = times["timed"]
    if not nominal:
        return
    claims = sorted(call.claim_ns for call in calls_of(shape, "timed"))
    low, high = quantile(claims, 0.05), quantile(claims, 0.95)
    for group, word in (("stress", "needs_audit"), ("structural", "verified_note")):
        value = times[group]
        if value and value > max(PARITY * nominal, high):
            yield TimingRule("T4.parity", word, f"{group} content takes {value / nominal:.2f} times as long")  # type: ignore[arg-type]
    if times["rotated"] and times["rotated"] > max(ROTATED * nominal, high):
        message = f"rotating addresses take {times['rotated'] / nominal:.2f} times as long as a fixed one"
        yield TimingRule("T5.rotated", "needs_audit", message)
    if times["recalled"] and times["recalled"] < min((1 - DRIFT) * nominal, low):
        message = f"known content takes {times['recalled'] / nominal:.2f} of the time of new content"
        yield TimingRule("T7.known_content", "needs_audit", message)


def judge_halves(claims_ns: Sequence[float]) -> Iterator[TimingRule]:
    """T7: the second half of the calls against the first; hot silicon is slower, so this is a note."""
    half = len(claims_ns) // 2
    first, second = statistics.median(claims_ns[:half]), statistics.median(claims_ns[half:])
    if first > 0 and abs(second / first - 1) > DRIFT:
        yield TimingRule("T7.halves", "verified_note", f"the second half took {second / first:.2f} times the first")


def judge_as_deck(shape: ShapeEvidence) -> Iterator[TimingRule]:
    """T9: a call with its launches inside takes no less than the device's part of it."""
    alone, with_launches = _median_of(shape, "timed"), _median_of(shape, "as_deck")
    if alone and with_launches and with_launches < DECK_LEAST * alone - DECK_SLACK_NS:
        message = f"{with_launches / US:.1f} us as the deck times it, {alone / US:.1f} us on the device alone"
        yield TimingRule("T9.as_deck", "needs_audit", message)


def judge_floor(median_ms: float, floor_ms: float) -> Iterator[TimingRule]:
    """T6: nothing is faster than its unavoidable bytes and operations."""
    message = f"{median_ms:.4f} ms against a physical floor of {floor_ms:.4f} ms"
    if median_ms < FLOOR_FAIL * floor_ms:
        yield TimingRule("T6.floor", "integrity", message)
    elif median_ms < FLOOR_AUDIT * floor_ms:
        yield TimingRule("T6.floor", "needs_audit", message)


def judge_agreement(median_ms: float, published_ms: float) -> Iterator[TimingRule]:
    """T3: the measured time against the published one."""
    message = f"measured {median_ms:.4f} ms, published {published_ms:.4f} ms"
    if median_ms > published_ms * SLOWER + AGREES_SLACK_MS:
        yield TimingRule("T3.agreement", "not_reproduced", message)
    elif median_ms > published_ms * AGREES + AGREES_SLACK_MS:
        yield TimingRule("T3.agreement", "verified_note", message)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, the nearest one at or above."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def calls_of(shape: ShapeEvidence, group: str) -> list[Call]:
    """Return the calls of a group that came to an answer."""
    return [call for call in shape.calls if call.group == group and call.fault is None]


def _median_of(shape: ShapeEvidence, group: str) -> float | None:
    values = [call.claim_ns for call in calls_of(shape, group)]
    return statistics.median(values) if len(values) >= 3 else None
