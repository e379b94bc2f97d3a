"""Verdicts and timing rules on made evidence: no process, no PyTorch."""

import random

import msgspec
import pytest

from grading.evidence import Call, DeviceSample, PassEvidence, ShapeEvidence, read_evidence
from grading.verdict import EXIT_CODES, Verdict, has_integrity_lead, is_plainly_wrong, is_settled, judge
from grading.verdict_timing import (
    find_split,
    judge_agreement,
    judge_as_deck,
    judge_classes,
    judge_distribution,
    judge_floor,
    judge_halves,
    judge_outside,
    judge_settle,
    judge_timing,
    summarise,
)
from grading.warden.hold import LEAST_US, MOST_US, hold_us
from tests.grader.made import FULL, NOOP, US, make_call, make_evidence, make_pass, make_shape


def words(rules) -> list[str]:
    return [f"{rule.rule} {rule.word}" for rule in rules]


def test_a_clean_grade_is_verified():
    verdict = judge(make_evidence())
    assert (verdict.word, verdict.fired, verdict.exit_code) == ("verified", [], 0)


def test_evidence_can_be_judged_again_from_its_bytes():
    evidence = make_evidence(make_pass(1, make_shape(make_call(ratio=7.0, bad=3))))
    again = read_evidence(msgspec.json.encode(evidence))
    assert judge(again) == judge(evidence)
    assert judge(again).word == "incorrect"


@pytest.mark.parametrize(
    ("fields", "rule", "word"),
    [
        ({"ratio": 1.01, "bad": 1}, "P6.timed", "incorrect"),
        ({"ratio": None, "bad": 1}, "P6.timed", "incorrect"),
        ({"ratio": float("nan"), "bad": 0}, "P6.timed", "incorrect"),
        ({"ratio": 3.0, "bad": 1, "is_within_deck": True}, "P16.scale", "incorrect"),
        ({"ratio": 3.0, "bad": 1, "poison_left": 900}, "P4.poison", "incorrect"),
        ({"form": "positions repeat", "bad": 1}, "P6.timed", "incorrect"),
        ({"fault": "output", "fault_text": "form: bf16"}, "E30.form", "incorrect"),
        ({"group": "edit", "ratio": 3.0, "bad": 1}, "P2c.edit", "incorrect"),
        ({"group": "silent_rewrite", "ratio": 3.0, "bad": 1}, "P2b.silent_rewrite", "incorrect"),
        ({"group": "exact", "ratio": 2.0, "bad": 1}, "P16.exact", "incorrect"),
    ],
)
def test_a_wrong_answer_is_incorrect_by_the_probe_that_saw_it(fields: dict, rule: str, word: str):
    group = fields.pop("group", "timed")
    verdict = judge(make_evidence(make_pass(1, make_shape(make_call(1, group, **fields)))))
    assert verdict.word == word
    assert rule in verdict.rules()


@pytest.mark.parametrize(
    ("kind", "ratio", "word"),
    [("edit", 4.4, "verified"), ("edit", 9.0, "incorrect"), ("edit", None, "incorrect"), ("nominal", 4.4, "incorrect")],
)
def test_a_spike_magnifies_honest_rounding_but_not_as_far_as_overlooking_it(kind: str, ratio: float | None, word: str):
    """On an H200 our delta attention was 4.4 tolerances off after an edit that moved the answer by hundreds."""
    call = make_call(1, "edit", kind=kind, ratio=ratio, bad=51, moved=250.0)
    shape = make_shape(*[make_call()] * 20, call)
    assert judge(make_evidence(make_pass(1, shape), make_pass(2, shape))).word == word


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        ({"inputs_intact": False}, "P9.input_written"),
        ({"fault": "output", "fault_text": "type: Lazy instead of torch.Tensor"}, "E31.type"),
        ({"fault": "output", "fault_text": "attributes: the tensor carries 'float'"}, "E31.type"),
    ],
)
def test_an_accusation_needs_two_passes_that_agree(call: dict, rule: str):
    shape = make_shape(make_call(**call))
    alone = judge(make_evidence(make_pass(1, shape), make_pass(2)))
    both = judge(make_evidence(make_pass(1, shape), make_pass(2, shape)))
    assert (alone.word, both.word) == ("needs_audit", "integrity")
    assert rule in both.rules()


def test_a_fault_of_memory_agrees_with_a_pass_that_saw_the_write():
    died = make_pass(1, ended="died", signal=11, at="shape 0 call")
    wrote = make_pass(2, make_shape(make_call(inputs_intact=False)), writable_inputs=True)
    assert judge(make_evidence(died, wrote)).word == "integrity"
    assert judge(make_evidence(died, make_pass(2, writable_inputs=True))).word == "inconclusive"


@pytest.mark.parametrize("ended", ["build", "died", "timeout", "output", "oracle", "device"])
def test_a_pass_that_stopped_is_inconclusive(ended: str):
    verdict = judge(make_evidence(make_pass(1, ended=ended, at="build")))
    assert (verdict.word, verdict.exit_code) == ("inconclusive", 4)


def test_raising_in_some_calls_is_wrong_and_in_all_of_them_says_nothing():
    raised = make_call(fault="raised", fault_text="ValueError: x", bad=1, ratio=None)
    some = judge(make_evidence(make_pass(1, make_shape(make_call(), raised))))
    every = judge(make_evidence(make_pass(1, make_shape(raised, raised))))
    assert (some.word, some.rules()) == ("incorrect", {"P6.timed"})
    assert (every.word, every.rules()) == ("inconclusive", {"grade.raised"})


def test_a_wrong_answer_counts_even_when_the_pass_stopped_later():
    shape = make_shape(make_call(ratio=9.0, bad=4))
    assert judge(make_evidence(make_pass(1, shape, ended="died"))).word == "incorrect"


@pytest.mark.parametrize(
    ("report", "tier", "word"),
    [
        (FULL, "A", "verified"),
        (FULL | {"uid": 0}, "B", "verified"),
        (FULL | {"missing": {"read_only": "mount: no"}}, "B", "verified"),
        ({key: value for key, value in FULL.items() if key != "seccomp"}, "B", "verified"),
        (FULL | {"namespaces": ["net"]}, "C", "inconclusive"),
        ({}, "C", "inconclusive"),
    ],
)
def test_weak_isolation_lowers_the_level_and_never_verifies_at_the_lowest(report: dict, tier: str, word: str):
    verdict = judge(make_evidence(make_pass(1, isolation={"worker": report})))
    assert (verdict.isolation, verdict.word) == (tier, word)


def test_a_census_opens_an_audit_for_what_the_deck_forbids():
    shape = msgspec.structs.replace(make_shape(), census=[{"name": "aten::mm", "kind": "op", "share": 0.9}])
    forbidden = ["torch.mm"]
    assert judge(make_evidence(make_pass(1, shape), forbidden_calls=forbidden)).word == "needs_audit"
    assert judge(make_evidence(make_pass(1, shape))).word == "verified"


def test_a_lower_class_of_precision_is_noted_then_audited():
    for ratio, word in ((1.2, "verified"), (2.5, "verified_note"), (16.0, "needs_audit")):
        calls = [make_call(number, class_ratio=ratio) for number in range(20)]
        assert judge(make_evidence(make_pass(1, make_shape(*calls)))).word == word


# The six honest rows and the cheat of the measured table: event and outside medians in microseconds, no-op subtracted.
@pytest.mark.parametrize(
    ("event", "outside", "fires"),
    [
        (18.2, 11.0, False),
        (169.0, 214.7, False),
        (25.8, 10.4, False),
        (84.0, 70.4, False),
        (687.4, 694.2, False),
        (648.4, 623.7, False),
        (105.0, 653.6, True),
    ],
)
def test_t1_catches_the_measured_side_stream_and_spares_the_six_honest_rows(event: float, outside: float, fires: bool):
    calls = [make_call(claim_ns=int(event * US), snap_ns=int(outside * US) + 35 * US) for _ in range(20)]
    assert words(judge_outside(calls, NOOP)) == (["T1.outside integrity"] if fires else [])


def test_a_tenth_of_wrong_answers_is_plain():
    def shapes(wrong: int) -> list[ShapeEvidence]:
        return [make_shape(*[make_call(n, bad=3, ratio=7.0) if n < wrong else make_call(n) for n in range(20)])]

    assert [is_plainly_wrong(shapes(wrong)) for wrong in (0, 2, 3, 20)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("calls", "is_final"),
    [
        ([{}], False),
        ([{"bad": 1, "ratio": 7.0}], True),
        ([{"bad": 1, "ratio": 1.1, "kind": "structural", "group": "structural"}], True),
        ([{"fault": "raised", "fault_text": "x"}], True),
        ([{"bad": 1, "ratio": 1.9}], False),
        ([{"bad": 1, "ratio": 1.9}] * 60, True),
        ([{"ratio": 7.9, "kind": "edit", "group": "edit"}], False),
        ([{"inputs_intact": False}], False),
    ],
)
def test_a_second_pass_has_nothing_to_confirm_where_more_answers_cannot_excuse_one(calls: list[dict], is_final: bool):
    """Two of our wrong solutions, right but for one structural case, took 113 and 169 s on an H200."""
    right = [make_call(n) for n in range(520)]
    taken = make_pass(1, make_shape(*right, *(make_call(600 + n, **fields) for n, fields in enumerate(calls))))
    assert is_settled(taken) == is_final
    assert not is_final or judge(make_evidence(taken, make_pass(2))).word == "incorrect"


@pytest.mark.parametrize(("raising", "is_final"), [(4, False), (40, True)])
def test_a_shape_that_raises_in_every_call_is_inconclusive_and_settles_a_grade_by_its_weight(
    raising: int, is_final: bool
):
    mute = make_shape(*[make_call(n, fault="raised", fault_text="x") for n in range(raising)])
    taken = make_pass(1, make_shape(*[make_call(n) for n in range(200)]), mute)
    assert is_settled(taken) == is_final
    assert judge(make_evidence(taken)).word == "inconclusive"


CHANGED = {"calibration_before_ms": 0.2925, "calibration_after_ms": 0.2861}
SLOWER = make_pass(2, make_shape(*[make_call(n, claim_ns=103 * US) for n in range(20)]))


@pytest.mark.parametrize(
    ("passes", "word"),
    [
        ([make_pass(1, **CHANGED)], "inconclusive"),
        ([make_pass(1, **CHANGED), make_pass(2)], "verified_note"),
        ([make_pass(1, **CHANGED), make_pass(2, **CHANGED)], "inconclusive"),
        ([make_pass(1, **CHANGED), SLOWER], "inconclusive"),
        ([make_pass(1, **CHANGED), make_pass(2, make_shape(), make_shape())], "inconclusive"),
        ([make_pass(1, calibration_before_ms=0.2905, calibration_after_ms=0.2861)], "verified"),
    ],
)
def test_a_changed_device_proves_no_times_but_where_another_pass_has_the_same(passes: list[PassEvidence], word: str):
    """Our kernel of verify 02 met it on an H200: 2.2 % between the readings, 0.3 % between the passes."""
    verdict = judge(make_evidence(*passes))
    assert (verdict.word, "P22.calibration" in verdict.rules()) == (word, word != "verified")


def test_times_of_short_calls_are_the_same_within_each_others_interval():
    def taken(number: int, us: int, spread: int) -> PassEvidence:
        calls = [make_call(n, claim_ns=(us + n % 3 * spread) * US, snap_ns=(us + 35) * US) for n in range(21)]
        return make_pass(number, make_shape(*calls), **(CHANGED if number == 1 else {}))

    assert judge(make_evidence(taken(1, 10, 1), taken(2, 11, 1))).word == "verified_note"
    assert judge(make_evidence(taken(1, 10, 1), taken(2, 14, 1))).word == "inconclusive"


def test_a_gpus_own_slack_decides_whether_a_second_pass_confirms():
    late = make_shape(*[make_call(n, snap_ns=1135 * US) for n in range(20)])
    assert has_integrity_lead(make_pass(1, late), "cuda:0")
    assert not has_integrity_lead(make_pass(1, late), "cpu")
    assert not has_integrity_lead(make_pass(1, make_shape()), "cuda:0")


def test_t1_counts_only_when_both_passes_agree():
    calls = [make_call(number, claim_ns=50 * US, snap_ns=700 * US, done_ns=695 * US) for number in range(20)]
    late = make_shape(*calls)
    assert judge(make_evidence(make_pass(1, late), make_pass(2, late))).word == "integrity"
    assert judge(make_evidence(make_pass(1, late), make_pass(2))).word == "needs_audit"


def test_t2_sees_a_median_game_and_spares_jitter():
    rng = random.Random(1)
    jitter = [100 * rng.uniform(0.97, 1.05) for _ in range(60)]
    assert words(judge_distribution(jitter)) == []
    assert words(judge_distribution([10.0] * 33 + [100.0] * 27)) == ["T2.spread needs_audit"]
    assert words(judge_distribution([80.0] * 33 + [110.0] * 27)) == ["T2.clusters needs_audit"]
    assert find_split(sorted([100.0] * 58 + [900.0] * 2)) is None


def test_t3_follows_the_published_time():
    for measured, expected in ((1.0, []), (1.06, []), (1.1, ["T3.agreement verified_note"])):
        assert words(judge_agreement(measured, 1.01)) == expected
    assert words(judge_agreement(1.3, 1.0)) == ["T3.agreement not_reproduced"]
    assert words(judge_agreement(0.0125, 0.010)) == []


def test_t3_needs_every_pass_to_be_slower():
    slow = make_shape(*[make_call(number, claim_ns=130 * US) for number in range(20)])
    published = [0.1]
    assert judge(make_evidence(make_pass(1, slow), make_pass(2, slow), published_ms=published)).word == "not_reproduced"
    assert judge(make_evidence(make_pass(1, slow), make_pass(2), published_ms=published)).word == "verified_note"


def test_t6_knows_what_is_impossible():
    assert words(judge_floor(0.95, 1.0)) == ["T6.floor integrity"]
    assert words(judge_floor(1.05, 1.0)) == ["T6.floor needs_audit"]
    assert words(judge_floor(1.2, 1.0)) == []


def test_t7_notes_a_slower_second_half():
    assert words(judge_halves([100.0] * 30 + [108.0] * 30)) == []
    assert words(judge_halves([100.0] * 30 + [115.0] * 30)) == ["T7.halves verified_note"]


def test_t8_charges_work_that_outlives_done():
    late = [make_call(done_ns=100 * US, snap_ns=160 * US) for _ in range(20)]
    assert words(judge_settle(late, make_shape())) == ["T8.settle needs_audit"]
    assert words(judge_settle([make_call()] * 20, make_shape())) == []


def test_t8_lets_the_copy_after_a_long_call_take_its_time():
    """On an H200 the copy after calls of 13 to 25 ms settled up to 140 us later than after a no-op."""
    long = [make_call(claim_ns=17_000 * US, done_ns=17_100 * US, snap_ns=17_260 * US) for _ in range(20)]
    assert words(judge_settle(long, make_shape())) == []


def test_times_are_summarised_with_the_noop_taken_off():
    summary = summarise(make_shape())
    assert summary is not None
    assert (summary.median_ms, summary.outside_ms, summary.noop_ms) == (0.1, 0.1, 0.035)
    assert summarise(make_shape(make_call(1, "edit"))) is None


def rare_grade(wrong: int, calls: int = 1500, **fields) -> Verdict:
    """Return the verdict on two passes of one shape in which some calls are a little wrong."""
    off = {"ratio": 1.9, "bad": 96} | fields
    made = [make_call(number, **(off if number < wrong else {})) for number in range(calls)]
    return judge(make_evidence(make_pass(1, make_shape(*made[::2])), make_pass(2, make_shape(*made[1::2]))))


def test_an_answer_in_a_thousand_that_is_a_little_off_is_looked_at_by_a_person():
    """So stood our own kernel of mega 02 on an H200: one of 1,492 answers, 1.9 tolerances."""
    verdict = rare_grade(1)
    assert (verdict.word, verdict.rules()) == ("needs_audit", {"P6.timed"})
    assert "hardly any other answer is off" in verdict.fired[0].message
    assert rare_grade(3).word == "needs_audit"


@pytest.mark.parametrize(
    "found",
    [
        rare_grade(4),
        rare_grade(1, 499),
        rare_grade(1, ratio=3.1),
        rare_grade(1, ratio=None),
        rare_grade(1, form="parts"),
        rare_grade(1, poison_left=64),
        rare_grade(1, fault="raised", fault_text="x"),
        rare_grade(1, group="structural", kind="structural"),
        rare_grade(1, group="exact", kind="exact"),
        rare_grade(1, group="edit", kind="edit", ratio=9.0),
    ],
)
def test_what_is_wrong_more_often_or_by_more_is_wrong(found: Verdict):
    assert found.word == "incorrect"


def test_every_verdict_has_an_exit_status():
    expected = {"verified": 0, "verified_note": 0, "not_reproduced": 1, "incorrect": 1, "integrity": 2}
    assert expected | {"needs_audit": 3, "inconclusive": 4} == EXIT_CODES


def groups(**medians: float) -> ShapeEvidence:
    """Return a shape whose groups of calls take these microseconds, the nominal ones spread by a fifth."""
    calls = [make_call(n, claim_ns=int((100 + 20 * (n % 11 - 5) / 5) * US)) for n in range(44)]
    made = [make_call(100 + n, group, claim_ns=int(median * US)) for group, median in medians.items() for n in range(8)]
    return make_shape(*calls, *made)


@pytest.mark.parametrize(
    ("group", "inside", "beyond", "rule"),
    [
        ("rotated", 115.0, 140.0, "T5.rotated needs_audit"),
        ("recalled", 85.0, 60.0, "T7.known_content needs_audit"),
        ("stress", 118.0, 140.0, "T4.parity needs_audit"),
        ("structural", 118.0, 140.0, "T4.parity verified_note"),
    ],
)
def test_a_class_differs_only_beyond_what_nominal_calls_take(group: str, inside: float, beyond: float, rule: str):
    assert words(judge_classes(groups(**{group: inside}))) == []
    assert words(judge_classes(groups(**{group: beyond}))) == [rule]


def test_a_stalled_host_is_no_spread_of_the_candidate():
    steady = [make_call(n) for n in range(36)]
    stalled = [make_call(100 + n, claim_ns=700 * US, done_ns=1300 * US, snap_ns=1305 * US) for n in range(4)]
    slower = [make_call(100 + n, claim_ns=700 * US, done_ns=730 * US, snap_ns=735 * US) for n in range(4)]
    assert "T2.spread" not in judge(make_evidence(make_pass(1, make_shape(*steady, *stalled)))).rules()
    assert "T2.spread" in judge(make_evidence(make_pass(1, make_shape(*steady, *slower)))).rules()


def test_t9_holds_the_decks_time_against_the_devices():
    assert words(judge_as_deck(groups(as_deck=110.0))) == []
    assert words(judge_as_deck(groups(as_deck=80.0))) == ["T9.as_deck needs_audit"]
    summary = summarise(groups(as_deck=117.0))
    assert summary is not None
    assert (summary.median_ms, summary.deck_ms) == (0.1, 0.117)


@pytest.mark.parametrize(
    ("fields", "word", "rule"),
    [
        ({}, "verified", ""),
        ({"throttle": 0x4}, "verified", ""),
        ({"throttle": 0x40}, "verified_note", "P22.throttled"),
        ({"worker_processes": 2}, "needs_audit", "P21.processes"),
        ({"foreign": [4711]}, "inconclusive", "P21.foreign_process"),
    ],
)
def test_what_nvml_says_during_a_pass_is_judged(fields: dict, word: str, rule: str):
    given = {"at_s": 1.0, "sm_mhz": 1980, "memory_mhz": 3201, "power_w": 125.0, "temperature_c": 40, "throttle": 0}
    sample = DeviceSample(**(given | {"worker_processes": 1, "foreign": []} | fields))
    verdict = judge(make_evidence(make_pass(1, samples=[sample])))
    assert verdict.word == word
    assert verdict.rules() == ({rule} if rule else set())


def held(claim_us: float, held_us: float, group: str = "timed") -> Call:
    """A call that the oracle held so long, and that took what it claims beyond that."""
    outside = int((claim_us + held_us) * US)
    return make_call(
        group=group,
        claim_ns=int(claim_us * US),
        held_ns=int(held_us * US),
        done_ns=outside + 30 * US,
        snap_ns=outside + 35 * US,
    )


def test_the_outside_clock_starts_when_the_hold_ends():
    shape = make_shape(*[held(100, 900)] * 20, noop_snap_ns=[335 * US] * 20, noop_held_ns=[300 * US] * 20)
    assert words(judge_timing(shape, [], is_gpu=True)) == []
    summary = summarise(shape)
    assert summary is not None and (summary.outside_ms, summary.noop_ms) == (0.1, 0.035)
    late = make_shape(*[held(40, 900)] * 20, noop_snap_ns=[335 * US] * 20, noop_held_ns=[300 * US] * 20)
    slow = [msgspec.structs.replace(call, snap_ns=call.snap_ns + 200 * US) for call in late.calls]
    shape = msgspec.structs.replace(late, calls=slow)
    assert "T1.outside integrity" in words(judge_timing(shape, [], is_gpu=True))


@pytest.mark.parametrize(("unheld_us", "word"), [(160, "needs_audit"), (500, "verified_note")])
def test_times_that_follow_the_hosts_launches_open_no_audit(unheld_us: float, word: str):
    """Read on an H200: launches of eager attention outlast a hold of 0.3 ms when the host is shared."""
    timed = [held(claim, 300) for claim in (100.0, 200.0) for _ in range(20)]
    calls = [*timed, *[held(unheld_us, 0, "unheld")] * 8]
    shape = make_shape(*calls, noop_snap_ns=[335 * US] * 20, noop_held_ns=[300 * US] * 20)
    assert f"T2.clusters {word}" in words(judge_timing(shape, [], is_gpu=True))
    agreed = words(judge_timing(shape, [0.05], is_gpu=True))
    assert f"T3.agreement {'not_reproduced' if word == 'needs_audit' else 'inconclusive'}" in agreed


def test_the_hold_follows_the_launches_of_the_warmup_within_bounds():
    idle = [30 * US] * 12

    def warm(*done_us: float) -> list[Call]:
        return [make_call(n, "warmup", done_ns=int(us * US)) for n, us in enumerate(done_us)]

    assert hold_us(warm(2_000_000, 50, 45, 48), idle) == LEAST_US
    assert hold_us(warm(2_000_000, 430, 280, 700), idle) == 1000
    assert hold_us(warm(2_000_000, 9000, 9100, 9050), idle) == MOST_US
    assert hold_us([make_call(1, "warmup", fault="raised")], idle) == hold_us([], idle) == LEAST_US
