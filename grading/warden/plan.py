"""Which calls a shape gets, and in which order: the correctness battery and the timed calls in one shuffled sequence.

The order is drawn from the secret after the candidate was imported, so that "check" and "bench" exist for nobody.
Steps of one group keep their order; groups are shuffled, except that warm-up comes first. Where the reference takes
long, fewer calls of a kind are made, never none.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Step:
    """One call, or with kind ``weights`` a new set of weights.

    bump   an in-place operation moves the inputs' version counters, as an honest caller's rewrite does
    renew  the worker drops its tensors over the slot and makes new ones
    keep   remember the content under a label
    as_deck  time the call as the decks do, on an idle device, so that the host's launches are inside
    is_held  the oracle keeps the device busy while the worker launches; the worker is not told
    """

    group: str
    kind: str
    name: str = ""
    slot: int = 0
    bump: bool = True
    renew: bool = False
    keep: str = ""
    as_deck: bool = False
    is_held: bool = True


@dataclass(frozen=True)
class Effort:
    """How much a tier does per shape.

    neighbours  how many shapes that are not listed are asked about after all passes
    unheld      calls like the timed ones on an idle device, for the outside clock alone
    seconds     what one shape should take at most in one pass; 0 = however long
    pass_seconds  what all shapes of a pass should take together; 0 = however long. Many shapes share it
    """

    seeds: int
    edits: int
    timed: int
    as_deck: int
    rotated: int
    repeated: int
    noops: int
    cases: int
    warmup: tuple[int, int]
    slots: int
    passes: int
    has_census: bool
    neighbours: int = 0
    unheld: int = 0
    seconds: float = 0.0
    pass_seconds: float = 0.0


QUICK = Effort(3, 6, 20, 0, 4, 4, 12, 8, (3, 6), 3, 1, False)
FULL = Effort(3, 20, 60, 0, 12, 8, 30, 8, (8, 24), 4, 2, True, 4)
QUICK_GPU = Effort(3, 6, 40, 30, 8, 8, 30, 8, (3, 6), 3, 1, False, unheld=8, seconds=12.0, pass_seconds=48.0)
FULL_GPU = Effort(3, 20, 100, 30, 20, 16, 60, 8, (8, 24), 4, 2, True, 4, 12, seconds=24.0, pass_seconds=60.0)

# What a baseline gets: its time, and enough fresh content to see that it answers rightly.
BASELINE = Effort(1, 0, 12, 0, 3, 3, 6, 0, (3, 4), 3, 1, False)
BASELINE_GPU = Effort(1, 0, 20, 30, 3, 3, 10, 0, (3, 4), 3, 1, False, unheld=4, seconds=10.0)

# What a shape beside the listed ones gets: its answers, on few contents of each kind, and no clock.
NEIGHBOUR_CALLS, NEIGHBOUR_SECONDS = 40, 60.0
NEIGHBOUR = Effort(2, 2, 0, 0, 2, 0, 0, 2, (1, 2), 2, 1, False)


def effort_of(tier: str, device: str) -> Effort:
    """Return what a tier does on a device."""
    if device == "cpu":
        return FULL if tier == "full" else QUICK
    return FULL_GPU if tier == "full" else QUICK_GPU


# Of each kind of call so many are made at the least.
_LEAST = {"seeds": 2, "edits": 6, "timed": 24, "as_deck": 6, "rotated": 6, "repeated": 5, "unheld": 4}
_TIMING = ("timed", "as_deck", "rotated", "repeated", "unheld")
# An edit is drawn again until it moves the reference's answer.
_EDIT_COST = 3


def shared(effort: Effort, shapes: int) -> Effort:
    """Return an effort whose time of a pass is divided among its shapes: eighteen of them get less each than four."""
    if not effort.pass_seconds or not shapes:
        return effort
    return replace(effort, seconds=min(effort.seconds, effort.pass_seconds / shapes))


def once_wrong(effort: Effort) -> Effort:
    """Return what a shape still gets after another one was plainly wrong: a few answers, and no clock."""
    return replace(NEIGHBOUR, slots=effort.slots, seconds=effort.seconds)


@dataclass(frozen=True)
class Cost:
    """Seconds of one call: what the oracle takes before and after it, and what the call itself takes."""

    oracle: float
    call: float


def fit(effort: Effort, cost: Cost, cases: Mapping[str, list[str]]) -> Effort:
    """Return an effort whose calls take about as long as one shape may, half of it for those that are timed.

    How many answers are probed follows the oracle's time alone, which a candidate does not set.
    """
    if not effort.seconds:
        return effort
    timing = sum(getattr(effort, name) for name in _TIMING)
    probes = len(list(plan_battery(effort, cases, random.Random(0)))) - timing + (_EDIT_COST - 1) * effort.edits
    shares = {name: effort.seconds / 2 / max(probes * cost.oracle, 1e-9) for name in ("seeds", "edits")}
    shares |= dict.fromkeys(_TIMING, effort.seconds / 2 / max(timing * (cost.oracle + cost.call), 1e-9))
    counts = {name: (getattr(effort, name), _LEAST[name], share) for name, share in shares.items()}
    return replace(
        effort, **{name: min(count, max(least, int(count * share))) for name, (count, least, share) in counts.items()}
    )


def plan_warmup(effort: Effort, rng: random.Random) -> Iterator[Step]:
    """Yield the first calls of a shape, a random number of them."""
    yield Step("weights", "weights")
    for number in range(rng.randint(*effort.warmup)):
        yield Step("warmup", "nominal", slot=number % effort.slots, is_held=False)


def plan_battery(effort: Effort, cases: Mapping[str, list[str]], rng: random.Random) -> Iterator[Step]:
    """Yield all other calls of a shape.

    cases  the names of the problem's cases by kind: ``structural``, ``camouflage``, ``exact``, ``stress``
    """
    slots = effort.slots
    groups = [[Step("fresh", "nominal")] for _ in range(effort.seeds)]
    groups += [[Step("timed", "nominal")] for _ in range(effort.timed)]
    groups += [[Step("as_deck", "nominal", as_deck=True, is_held=False)] for _ in range(effort.as_deck)]
    groups += [[Step("unheld", "nominal", is_held=False)] for _ in range(effort.unheld)]
    groups += [[Step("rotated", "nominal", slot=rng.randrange(1, slots))] for _ in range(effort.rotated)]
    for kind in ("stress", "structural", "camouflage", "exact"):
        groups += [[Step(kind, kind, name), *_restored(kind)] for name in cases.get(kind, [])[: effort.cases]]
    groups += [_same_storage(), _edits(effort.edits), _addresses(), _repeat(), _recalled(effort.repeated)]
    rng.shuffle(groups)
    groups.insert(rng.randrange(len(groups) // 3, len(groups)), _new_weights())
    for group in groups:
        yield from group


def _restored(kind: str) -> list[Step]:
    """Bring back weights that a case changed, in a call of its own: an honest repack must not land in a timed call."""
    return [Step("restored", "nominal")] if kind in ("stress", "exact") else []


def _new_weights() -> list[Step]:
    return [Step("weights", "weights"), Step("new_weights", "nominal"), Step("new_weights", "nominal", slot=1)]


def _same_storage() -> list[Step]:
    """P2a moves the version counters, P2b leaves everything but the contents as it was."""
    return [
        Step("same_storage", "nominal"),
        Step("same_storage", "nominal"),
        Step("silent_rewrite", "nominal", bump=False),
        Step("silent_rewrite", "nominal", bump=False),
    ]


def _edits(count: int) -> list[Step]:
    return [Step("same_storage", "nominal"), *(Step("edit", "edit", bump=False) for _ in range(count))]


def _addresses() -> list[Step]:
    """A, B, A, B at two addresses, then swapped; the last ones over new tensor objects at old addresses."""
    return [
        Step("addresses", "nominal", keep="A"),
        Step("addresses", "nominal", slot=1, keep="B"),
        Step("addresses", "label", "A"),
        Step("addresses", "label", "B", slot=1),
        Step("addresses", "label", "B"),
        Step("addresses", "label", "A", slot=1),
        Step("renewed", "nominal", renew=True),
        Step("renewed", "nominal", renew=True),
        Step("renewed", "nominal", slot=1, renew=True),
    ]


def _repeat() -> list[Step]:
    """One content five times more, under both poisons: the answers must agree."""
    return [Step("repeat", "nominal"), *(Step("repeat", "same") for _ in range(5))]


def _recalled(count: int) -> list[Step]:
    """Known contents again, to see whether known ones run faster."""
    if not count:
        return []
    return [Step("timed", "nominal", keep="again"), *(Step("recalled", "label", "again") for _ in range(count))]
