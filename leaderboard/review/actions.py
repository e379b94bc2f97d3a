"""What the desk does: publishing's acts behind an optimistic lock, one by one, in bulk, and tried without effect.

Every form carries what its reader saw: the evidence digest, the state and the run's last decision. An act is carried
out only if all three still hold, checked under the lock that orders all decisions. A form that is sent twice is
recognised by the decision that it already made.
"""

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.db import transaction
from django.db.models import Max, Q

from leaderboard import publishing, selection
from leaderboard.changes import CellChange, compare
from leaderboard.models import Decision, Release, Run
from leaderboard.publishing import Act, PublishingError
from leaderboard.review.queue import read_runs

MAX_BULK = 200
TRIAL = "Tried for a preview; never stored."
WORDS = {"approve": "approved", "reject": "rejected", "withdraw": "withdrawn", "pin": "pinned", "waive": "excepted"}


class StaleError(PublishingError):
    """What a form was made for has changed; nothing was done."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader of a form saw of a run."""

    digest: str
    state: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.digest}.{self.state}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "Seen":
        """Return what a form carried. Raises StaleError for a text that no form carries."""
        digest, _, rest = text.partition(".")
        state, _, number = rest.partition(".")
        if not (digest and number.isascii() and number.isdigit() and len(number) < 12):
            raise StaleError("the form does not say what you saw; open the run again")
        return cls(digest, state, int(number))


@dataclass(frozen=True, slots=True)
class Options:
    """What an act needs beside run and reason."""

    is_acknowledged: bool = False
    code: str = ""
    batch: str = ""
    expires_at: datetime.datetime | None = None
    is_reuse: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """What was decided; `is_repeated` where the same form had already done it."""

    decision: Decision
    is_repeated: bool = False


@dataclass(slots=True)
class Line:
    """One run of a bulk act: what it does, or why it is refused."""

    run: Run
    seen: Seen
    words: str = ""
    refusal: str | None = None
    needs_acknowledgement: bool = False


@dataclass(slots=True)
class Bulk:
    """A bulk act, previewed or done."""

    action: str
    lines: list[Line] = field(default_factory=list)

    @property
    def possible(self) -> list[Line]:
        """The lines that are not refused."""
        return [line for line in self.lines if line.refusal is None]

    @property
    def refused(self) -> list[Line]:
        """The lines that are."""
        return [line for line in self.lines if line.refusal is not None]


def see(runs: Sequence[Run]) -> dict[int, Seen]:
    """Return what a form made now for these runs carries; one query."""
    last = last_sequences(run.pk for run in runs)
    return {
        run.pk: Seen(run.assessment.evidence_digest, selection.state_of(run) or "", last.get(run.pk, 0)) for run in runs
    }


def last_sequences(keys: Iterable[int]) -> dict[int, int]:
    """Return the number of each run's last decision, waivers on it included; none for a run without."""
    runs = Run.objects.filter(pk__in=list(keys)).annotate(
        own=Max("decisions__sequence"), shared=Max("waivers__decision__sequence")
    )
    return {pk: max(own or 0, shared or 0) for pk, own, shared in runs.values_list("pk", "own", "shared")}


def decide(action: str, key: int, act: Act, seen: Seen, options: Options) -> Done:
    """Carry out one act on one run, or nothing.

    Raises StaleError when the run changed since it was seen, PublishingError when the rules of publication refuse.
    """
    with transaction.atomic():
        publishing.lock_decisions()
        (run,) = read_runs([key])
        now = see([run])[run.pk]
        if now != seen:
            repeated = _repeated(action, run, act, seen)
            if repeated is not None:
                return Done(repeated, is_repeated=True)
            raise StaleError(_what_changed(run, seen, now))
        return Done(_act_on(action, run, act, options))


def _act_on(action: str, run: Run, act: Act, options: Options) -> Decision:
    if action == "waive":
        return _waive([run], act, options)
    acts: dict[str, Callable[[Run, Act], Decision]] = {
        "approve": partial(publishing.approve, is_acknowledged=options.is_acknowledged),
        "reject": publishing.reject,
        "withdraw": publishing.withdraw,
        "pin": publishing.pin,
    }
    return acts[action](run, act)


def _waive(runs: Sequence[Run], act: Act, options: Options) -> Decision:
    return publishing.waive(
        options.code, runs, act, batch=options.batch, expires_at=options.expires_at, is_reuse=options.is_reuse
    ).decision


def _decisions_since(run: Run, sequence: int) -> list[Decision]:
    of_run = Q(run=run) | Q(waivers__runs=run)
    found = Decision.objects.filter(of_run, sequence__gt=sequence).select_related("actor").order_by("sequence")
    return list(found.distinct())


def _repeated(action: str, run: Run, act: Act, seen: Seen) -> Decision | None:
    """Return the decision that the very same form already made, if it is the only one since."""
    since = _decisions_since(run, seen.sequence)
    kinds = {Decision.Kind.WAIVE: "waive", Decision.Kind.REUSE: "waive"}
    if len(since) != 1:
        return None
    decision = since[0]
    kind = kinds.get(Decision.Kind(decision.kind), decision.kind)
    is_same = (kind, decision.actor_id, decision.reason) == (action, act.actor.pk, act.reason)
    return decision if is_same else None


def _what_changed(run: Run, seen: Seen, now: Seen) -> str:
    since = _decisions_since(run, seen.sequence)
    if since:
        last = since[-1]
        at = last.at.astimezone(datetime.UTC).strftime("%H:%M UTC")
        return f"{last.actor} decided meanwhile ({last.get_kind_display().lower()}, decision {last.sequence}, {at})"
    if now.digest != seen.digest:
        return "the evidence changed since you opened it"
    return f"the run is {now.state or 'undecided'} now, it was {seen.state or 'undecided'}"


def preview_bulk(action: str, runs: Sequence[Run], act: Act, options: Options) -> Bulk:
    """Return what an act would do to each run and what refuses it: it is tried in full, then undone."""
    seen = see(runs)
    bulk = Bulk(action, [Line(run, seen[run.pk]) for run in runs])
    with transaction.atomic():
        publishing.lock_decisions()
        for line in bulk.lines:
            line.needs_acknowledgement = action == "approve" and line.run.assessment.needs_acknowledgement
            _attempt(line, action, act, options)
        transaction.set_rollback(True)
    bulk.lines.sort(key=lambda line: line.refusal is not None)
    return bulk


def _attempt(line: Line, action: str, act: Act, options: Options) -> None:
    try:
        if action == "waive" and options.code not in line.run.assessment.blockers:
            raise PublishingError(f"{options.code or 'no code'} does not block this run")
        with transaction.atomic():
            _act_on(action, line.run, act, options)
            line.words = _outcome(action, line)
    except PublishingError as error:
        line.refusal = str(error).removeprefix(f"{line.run} ").removeprefix(f"{line.run}: ")


def _outcome(action: str, line: Line) -> str:
    if action != "waive":
        return f"{line.seen.state or 'undecided'} → {WORDS[action]}"
    (after,) = read_runs([line.run.pk])
    rest = ", ".join(after.assessment.blockers)
    return f"{line.run.assessment.standing} → {after.assessment.standing}" + (
        f", still blocked by {rest}" if rest else ""
    )


def confirm_bulk(action: str, seen: dict[int, Seen], act: Act, options: Options) -> Bulk:
    """Carry out a previewed act: one decision per run, or one waiver over all. What changed is left alone and named."""
    runs = read_runs(seen)
    bulk = Bulk(action, [Line(run, seen[run.pk]) for run in runs])
    if action == "waive":
        _confirm_waiver(bulk, act, options)
        return bulk
    for line in bulk.lines:
        try:
            done = decide(action, line.run.pk, act, line.seen, options)
            line.words = f"decision {done.decision.sequence}" + (", made before" if done.is_repeated else "")
        except PublishingError as error:
            line.refusal = str(error)
    return bulk


@transaction.atomic
def _confirm_waiver(bulk: Bulk, act: Act, options: Options) -> None:
    publishing.lock_decisions()
    now = see([line.run for line in bulk.lines])
    for line in bulk.lines:
        if now[line.run.pk] != line.seen:
            line.refusal = _what_changed(line.run, line.seen, now[line.run.pk])
    if not bulk.possible:
        return
    try:
        decision = _waive([line.run for line in bulk.possible], act, options)
    except PublishingError as error:
        for line in bulk.possible:
            line.refusal = str(error)
        return
    for line in bulk.possible:
        line.words = f"decision {decision.sequence}"


# Every kind of change in the order in which it matters, in words.
KINDS = {
    "enters": "Enters as a result",
    "moves": "Moves",
    "leaves": "Is no longer a result",
    "changes": "Is withheld or failed for another reason",
    "appears": "Appears as withheld or failed",
    "disappears": "Is no longer mentioned",
}


@dataclass(frozen=True, slots=True)
class ReleasePreview:
    """What the next release would hold and change."""

    latest: Release | None
    digest: str
    counts: dict[str, int]
    changes: tuple[CellChange, ...]
    runs: dict[int, Run]

    @property
    def kinds(self) -> list[tuple[str, str, list[CellChange]]]:
        """The changes by kind: its name, its words, its changes."""
        by_kind = {kind: [change for change in self.changes if change.kind == kind] for kind in KINDS}
        return [(kind, KINDS[kind], held) for kind, held in by_kind.items() if held]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return self.latest is not None and self.latest.digest == self.digest


def preview_release(at: datetime.datetime) -> ReleasePreview:
    """Return what a release taken now would change against the latest one."""
    rows, latest = selection.choose_cells(at), Release.objects.first()
    before = list(latest.cells.all()) if latest else []
    changes = tuple(compare(before, rows))
    keys = {row.run_id for change in changes for row in (change.before, change.after) if row is not None}
    runs = {run.pk: run for run in read_runs(sorted(keys))}
    return ReleasePreview(latest, selection.digest_of(rows), selection.count(rows), changes, runs)


def publish(act: Act, digest: str) -> tuple[Release, bool]:
    """Take the release that was previewed; return it, and whether the same form had already taken it.

    Raises StaleError when the cells are not those of the preview any more, PublishingError when publishing refuses.
    """
    with transaction.atomic():
        publishing.lock_decisions()
        latest = Release.objects.first()
        if latest is not None and latest.digest == digest and latest.actor_id == act.actor.pk:
            return latest, True
        if selection.digest_of(selection.choose_cells(act.at)) != digest:
            raise StaleError("the cells changed since you opened the preview; look at it again")
        return publishing.release(act), False
