"""The verdict of a grade, from its evidence alone: pure functions, so that evidence can be judged again by newer rules.

Every rule that fires is listed with its numbers. Only ``incorrect`` and ``integrity`` remove a result without a person;
``integrity`` needs two passes that agree. Suspicions open an audit and never more.

Source: docs/grader.md "Verdicts".
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from grading.evidence import Call, Evidence, Neighbour, PassEvidence, ShapeEvidence, shape_label
from grading.verdict_code import CodeRule, judge_code
from grading.verdict_device import DeviceRule, judge_device
from grading.verdict_timing import TimingRule, judge_timing

RULES_VERSION = "2"
UNTIMED = "grade.untimed"
Word = Literal["verified", "verified_note", "not_reproduced", "incorrect", "integrity", "needs_audit", "inconclusive"]
Outcome = Literal["right", "wrong", "refused", "crashed", "unreached"]
EXIT_CODES: dict[Word, int] = {
    "verified": 0,
    "verified_note": 0,
    "not_reproduced": 1,
    "incorrect": 1,
    "integrity": 2,
    "needs_audit": 3,
    "inconclusive": 4,
}
_GRAVEST: tuple[Word, ...] = (
    "integrity",
    "incorrect",
    "inconclusive",
    "needs_audit",
    "not_reproduced",
    "verified_note",
)
_GROUP_RULES = {
    "warmup": "P1.fresh",
    "fresh": "P1.fresh",
    "timed": "P6.timed",
    "recalled": "P6.timed",
    "rotated": "P3.addresses",
    "addresses": "P3.addresses",
    "renewed": "P3.renewed",
    "same_storage": "P2a.rewrite",
    "new_weights": "P2a.weights",
    "restored": "P2a.weights",
    "as_deck": "P6.timed",
    "unheld": "P6.timed",
    "silent_rewrite": "P2b.silent_rewrite",
    "edit": "P2c.edit",
    "repeat": "P4.repeat",
    "stress": "P14.stress",
    "structural": "P14.structural",
    "camouflage": "P14.camouflage",
    "exact": "P16.exact",
}
_FORGED_FORMS = ("type:", "attributes:")
_ENDED = {
    "build": "grade.build",
    "died": "grade.worker_ended",
    "timeout": "grade.timeout",
    "output": "grade.output",
    "oracle": "grade.oracle",
    "device": "grade.device",
}
_CLASS_NOTE, _CLASS_AUDIT = 1.5, 4.0
_CENSUS_SHARE = 0.05
# Counters say nothing of less, and may be so far off.
_TRAFFIC_BYTES, _TRAFFIC_SHARE = 16e6, 0.5
EDIT_TOLERANCES = 8.0
RARE_TOLERANCES, RARE_ONE_IN = 3.0, 500
_RANDOM = frozenset({"nominal", "same", "label"})
_PLAIN_SHARE = 0.1
_NEVER_RIGHT_CALLS = 12
_NEEDED = frozenset({"mount", "pid", "net", "ipc", "uts"})


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired in a pass: what it would mean, in one sentence, with its numbers."""

    rule: str
    word: Word
    message: str
    in_pass: int
    shape: int | None = None
    count: int = 1


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The word, every rule that fired, and how well the host isolated the candidate (A, B or C)."""

    word: Word
    fired: list[Fired]
    isolation: str
    rules_version: str = RULES_VERSION

    @property
    def exit_code(self) -> int:
        """Return the exit status of the ``grade`` command."""
        return EXIT_CODES[self.word]

    def rules(self) -> set[str]:
        """Return the names of the rules that fired."""
        return {item.rule for item in self.fired}


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on a whole grade."""
    fired, rare = list(_judge_intake(evidence)), rare_calls(evidence.passes)
    if evidence.untimed and evidence.passes:
        fired.append(Fired(rule=UNTIMED, word="verified_note", message=evidence.untimed, in_pass=0))
    for taken in evidence.passes:
        fired += _judge_pass(evidence, taken, rare)
    fired = _settle_integrity(fired, evidence.passes)
    fired += _judge_neighbours(evidence)
    tier = isolation_tier(evidence.passes)
    words = {item.word for item in fired}
    word: Word = next((candidate for candidate in _GRAVEST if candidate in words), "verified")
    if word in ("verified", "verified_note") and (tier == "C" or not evidence.passes):
        message = "this host cannot keep a candidate from its grader; see doctor"
        fired.append(Fired(rule="host.isolation", word="inconclusive", message=message, in_pass=1))
        word = "inconclusive"
    return Verdict(word=word, fired=fired, isolation=tier)


def isolation_tier(passes: list[PassEvidence]) -> str:
    """Return A with namespaces, root, user and call filter of the worker's own, B with less, C with too little."""
    reports = [taken.isolation.get("worker", {}) for taken in passes]
    if not reports or not all(reports):
        return "C"
    tiers = []
    for report in reports:
        names = report.get("namespaces")
        held = _NEEDED & set(names if isinstance(names, list) else ())
        missing = report.get("missing")
        lacks = set(missing if isinstance(missing, dict) else ()) & {"read_only", "proc", "uid"}
        is_full = held == _NEEDED and not lacks and report.get("root") == "own" and report.get("uid") != 0
        is_full = is_full and "seccomp" in report
        tiers.append("A" if is_full else "B" if {"mount", "pid", "net"} <= held else "C")
    return max(tiers)


def has_integrity_lead(taken: PassEvidence, device: str) -> bool:
    """Tell whether a pass fired a rule that only a second pass can confirm."""
    rules = [
        *_judge_end(taken),
        *(item for index, shape in enumerate(taken.shapes) for item in _judge_calls(taken, index, shape)),
    ]
    timing = [item for shape in taken.shapes for item in judge_timing(shape, [], is_gpu=device != "cpu")]
    words = [item.word for item in rules] + [item.word for item in timing]
    return "integrity" in (*words, *(item.word for item in judge_code(taken.mapped_code)))


def is_plainly_wrong(shapes: Sequence[ShapeEvidence]) -> bool:
    """Tell whether more than a tenth of all answers were wrong."""
    calls = [call for shape in shapes for call in shape.calls]
    return sum(map(_is_incorrect, calls)) > _PLAIN_SHARE * len(calls)


def is_never_right(calls: Sequence[Call]) -> bool:
    """Tell whether a shape has nothing left to show: of at least a dozen answers all are whole and plainly wrong.

    Whoever remembers answers is right at first, and whoever answers late leaves poison: these get all their calls.
    """
    return len(calls) >= _NEVER_RIGHT_CALLS and all(map(_is_whole_and_wrong, calls))


def _is_whole_and_wrong(call: Call) -> bool:
    words = {word for _, word, _ in _faults(call)}
    is_whole = call.fault is None and not call.poison_left
    return is_whole and words == {"incorrect"} and not _is_slight(call)


def is_settled(taken: PassEvidence) -> bool:
    """Tell whether a second pass has nothing left to confirm.

    That is so after an answer that makes the grade incorrect whatever others say (see `rare_calls` for those that
    others can excuse), and where more than a tenth of the calls were wrong or raised: nothing can verify that any more.
    """
    heard = [shape.calls for shape in taken.shapes if any(call.fault != "raised" for call in shape.calls)]
    is_final = any(_is_incorrect(call) and not _is_slight(call) for calls in heard for call in calls)
    return is_final or is_plainly_wrong(taken.shapes)


def _is_incorrect(call: Call) -> bool:
    return any(word == "incorrect" for _, word, _ in _faults(call))


def _judge_intake(evidence: Evidence) -> Iterator[Fired]:
    for reason in evidence.intake.refused:
        yield Fired(rule="P19.bundle", word="inconclusive", message=f"bundle refused: {reason}", in_pass=0)
    for use in evidence.intake.forbidden:
        message = f"uses what the deck forbids: {use}"
        yield Fired(rule="rules.forbidden", word="incorrect", message=message, in_pass=0)


def _judge_pass(evidence: Evidence, taken: PassEvidence, rare: frozenset[int]) -> Iterator[Fired]:
    yield from _judge_end(taken)
    for index, shape in enumerate(taken.shapes):
        yield from _judge_calls(taken, index, shape, rare)
        yield from _judge_class(taken, index, shape)
        if not evidence.intake.is_exempt:
            yield from _judge_census(evidence, taken, index, shape)
            yield from _judge_traffic(taken, index, shape)
        if evidence.untimed:
            continue
        published = evidence.published_ms[index : index + 1]
        for item in judge_timing(shape, published, is_gpu=evidence.device != "cpu"):
            yield _from_rule(item, taken.number, index)
    for found in judge_code(taken.mapped_code):
        yield _from_rule(found, taken.number, None)
    for seen in judge_device(taken, evidence.passes):
        yield _from_rule(seen, taken.number, None)


def _judge_end(taken: PassEvidence) -> Iterator[Fired]:
    if taken.ended == "complete":
        return
    message = f"the pass ended at {taken.at!r}: {taken.detail[:300]}"
    if taken.ended == "protocol":
        yield Fired(rule="P20.protocol", word="integrity", message=message, in_pass=taken.number)
        return
    rule = _ENDED.get(taken.ended, "grade.ended")
    yield Fired(rule=rule, word="inconclusive", message=message, in_pass=taken.number)


def _judge_calls(
    taken: PassEvidence, index: int, shape: ShapeEvidence, rare: frozenset[int] = frozenset()
) -> Iterator[Fired]:
    """Yield one item per rule, with the count of calls that broke it and the first of them in words.

    A solution that raises in every call does not run on this device; one that raises in some is wrong in those. Calls
    in ``rare`` open an audit, see `rare_calls`.
    """
    if shape.calls and all(call.fault == "raised" for call in shape.calls):
        message = f"every call raised: {shape.calls[0].fault_text}"
        yield Fired(rule="grade.raised", word="inconclusive", message=message, in_pass=taken.number, shape=index)
        return
    found: dict[str, list[tuple[Call, Word, str]]] = {}
    for call in shape.calls:
        for rule, word, message in _faults(call):
            found.setdefault(rule, []).append((call, word, message))
    for rule, items in found.items():
        call, word, message = items[0]
        if call.number in rare and word == "incorrect":
            word, message = "needs_audit", f"{message}; hardly any other answer is off"
        where = f"call {call.number} ({call.group}{' ' + call.name if call.name else ''}): {message}"
        yield Fired(rule=rule, word=word, message=where, in_pass=taken.number, shape=index, count=len(items))


def _faults(call: Call) -> Iterator[tuple[str, Word, str]]:
    if not call.inputs_intact:
        yield "P9.input_written", "integrity", "the inputs were written to"
    if call.fault == "output" and call.fault_text and call.fault_text.startswith(_FORGED_FORMS):
        yield "E31.type", "integrity", f"the answer is no plain tensor: {call.fault_text}"
        return
    if call.fault == "output":
        yield "E30.form", "incorrect", f"the answer has another form: {call.fault_text}"
        return
    if call.fault is not None:
        yield _GROUP_RULES[call.group], "incorrect", f"the call raised {call.fault_text}"
        return
    if is_right(call):
        return
    if call.poison_left:
        yield "P4.poison", "incorrect", f"{call.poison_left} bytes of the answer still hold the poison"
    size = "not finite where the reference is" if call.ratio is None else f"largest error {call.ratio:.3g} tolerances"
    message = call.form or f"{call.bad} elements are wrong, {size}"
    yield _GROUP_RULES[call.group], "incorrect", message
    if call.is_within_deck:
        yield "P16.scale", "incorrect", f"passes the deck's absolute tolerance only because values are small: {size}"


def is_right(call: Call) -> bool:
    """Tell whether an answer stands within the gate, or after an edit within `EDIT_TOLERANCES` of it.

    Edits make elements as large as no honest input is, and rounding in what follows from them grows alike: on an H200
    our delta attention was up to 4.4 tolerances off there, and within 0.4 on all else. What overlooks an edit is off by
    what the edit moves the answer by: 20 tolerances or more, where the oracle finds such an edit in eight tries.
    """
    if call.form is not None or call.ratio is None:
        return False
    return call.ratio <= EDIT_TOLERANCES if call.kind == "edit" else call.bad == 0 and call.ratio <= 1.0


def rare_calls(passes: Sequence[PassEvidence]) -> frozenset[int]:
    """Return the numbers of the calls that are wrong by little where hardly any is: one in 500, within 3 tolerances.

    Gates are read off some thousand answers, so that an honest kernel can exceed one now and then: one answer in 1,492
    of ours in mega 02 did, by 1.9. A person looks then; what is wrong by more, more often, in another way than an
    element's value, or in anything but random content is wrong.
    """
    calls = [call for taken in passes for shape in taken.shapes for call in shape.calls]
    wrong = [call for call in calls if call.fault is not None or not is_right(call)]
    is_rare = len(wrong) <= len(calls) // RARE_ONE_IN and all(map(_is_slight, wrong))
    return frozenset(call.number for call in wrong) if is_rare else frozenset()


def _is_slight(call: Call) -> bool:
    """Tell whether an answer to random content is complete and within a few tolerances."""
    is_whole = call.fault is None and call.form is None and not call.poison_left
    return is_whole and call.kind in _RANDOM and call.ratio is not None and call.ratio <= RARE_TOLERANCES


def _judge_class(taken: PassEvidence, index: int, shape: ShapeEvidence) -> Iterator[Fired]:
    ratios = sorted(call.class_ratio for call in shape.calls if call.class_ratio is not None and call.kind == "nominal")
    if not ratios:
        return
    middle = ratios[len(ratios) // 2]
    message = f"error is {middle:.2f} times that of the declared precision"
    if middle > _CLASS_AUDIT:
        yield Fired(rule="P16.class", word="needs_audit", message=message, in_pass=taken.number, shape=index)
    elif middle > _CLASS_NOTE:
        yield Fired(rule="P16.class", word="verified_note", message=message, in_pass=taken.number, shape=index)


def _judge_census(evidence: Evidence, taken: PassEvidence, index: int, shape: ShapeEvidence) -> Iterator[Fired]:
    names = {call.rpartition(".")[2] for call in evidence.forbidden_calls}
    for row in shape.census:
        operation, share = str(row["name"]).rpartition("::")[2], float(row["share"])
        if operation in names and share >= _CENSUS_SHARE:
            message = f"{row['name']} took {share:.0%} of the call; the deck forbids it"
            yield Fired(rule="P17.census", word="needs_audit", message=message, in_pass=taken.number, shape=index)


def _judge_traffic(taken: PassEvidence, index: int, shape: ShapeEvidence) -> Iterator[Fired]:
    traffic = shape.traffic
    moved, least = (traffic.dram_bytes, traffic.least_bytes) if traffic is not None else (None, None)
    if moved is not None and least is not None and least >= _TRAFFIC_BYTES and moved < _TRAFFIC_SHARE * least:
        message = f"a call moves {moved / 1e6:.1f} MB, of {least / 1e6:.1f} MB that none can avoid"
        yield Fired(rule="P17.traffic", word="verified_note", message=message, in_pass=taken.number, shape=index)


def outcome_of(neighbour: Neighbour) -> Outcome:
    """Return what came of a shape beside the listed ones.

    ``refused`` says so with an error, in its constructor or in every call; ``wrong`` answers, and not rightly;
    ``crashed`` took the worker with it; ``unreached`` was not asked about, or the reference had no answer.
    """
    calls = neighbour.calls
    if all(call.fault == "raised" for call in calls) and (calls or neighbour.ended == "build"):
        return "refused"
    if any(True for call in calls for _ in _faults(call)):
        return "wrong"
    if neighbour.ended in ("unreached", "oracle"):
        return "unreached"
    return "right" if neighbour.ended == "complete" else "crashed"


def _judge_neighbours(evidence: Evidence) -> Iterator[Fired]:
    """P13: a deck promises its own shapes, so a wrong answer beside them is a note; a refusal is honest and is none."""
    outcomes = [(outcome_of(neighbour), neighbour.shape) for neighbour in evidence.neighbours]
    failed = [(outcome, shape) for outcome, shape in outcomes if outcome in ("wrong", "crashed")]
    if failed:
        outcome, shape = failed[0]
        count = f"{len(failed)} of {len(outcomes)} others"
        message = f"answers only the listed shapes: {outcome} at {shape_label(shape)}; failed at {count}"
        yield Fired(rule="P13.neighbour", word="verified_note", message=message, in_pass=0, count=len(failed))


def _from_rule(item: TimingRule | CodeRule | DeviceRule, number: int, index: int | None) -> Fired:
    word: Word = item.word
    return Fired(rule=item.rule, word=word, message=item.message, in_pass=number, shape=index)


def _settle_integrity(fired: list[Fired], passes: list[PassEvidence]) -> list[Fired]:
    """Let an accusation stand only where two passes agree; one alone opens an audit.

    A worker that died of a write to read-only memory agrees with a pass in which the write was let through and seen.
    """
    agreeing: dict[str, set[int]] = {}
    for item in fired:
        if item.word == "integrity":
            agreeing.setdefault(item.rule, set()).add(item.in_pass)
    faulted = {t.number for t in passes if t.ended == "device" or (t.ended == "died" and t.signal is not None)}
    if "P9.input_written" in agreeing:
        agreeing["P9.input_written"] |= faulted
    seen = {(item.rule, item.word, item.shape, item.in_pass) for item in fired}
    settled = []
    for item in fired:
        if item.word == "integrity" and len(agreeing[item.rule]) < 2:
            settled.append(msgspec.structs.replace(item, word="needs_audit"))
        elif item.word == "not_reproduced" and any(
            (item.rule, item.word, item.shape, taken.number) not in seen for taken in passes
        ):
            settled.append(msgspec.structs.replace(item, word="verified_note"))
        else:
            settled.append(item)
    return settled
