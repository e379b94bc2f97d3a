"""Audit files as people write them: read, repaired, or kept as unreadable."""

import time

import pytest

from grading.auditfile import MAX_AUDIT_BYTES, AuditError, Quote, read_audit

RUN_ID = "20260701_120000_codex_lab_model-1_07_w4a16_gemm"


def make_text(*lines, run_id=RUN_ID, verdict="clean"):
    head = [f"run_id: {run_id}"] if run_id else []
    return "\n".join([*head, *([f"verdict: {verdict}"] if verdict else []), *lines, ""])


def read(*lines, name=f"{RUN_ID}.yaml", **changes):
    return read_audit(make_text(*lines, **changes).encode(), name, "hard")


def test_it_reads_a_plain_audit():
    audit = read("summary: >", "  A real", "  kernel.", "auditor: A. Person (by hand)")
    assert (audit.run_id, audit.run_id_source, audit.deck, audit.status) == (RUN_ID, "file", "hard", "read")
    assert (audit.verdict_text, audit.verdict, audit.publishable) == ("clean", "clean", "yes")
    assert (audit.summary, audit.auditor) == ("A real kernel.", "A. Person (by hand)")


@pytest.mark.parametrize(
    ("word", "verdict", "publishable"),
    [
        ("clean", "clean", "yes"),
        ("Clean", "clean", "yes"),
        ("interesting", "interesting", "with_acknowledgement"),
        ("rubric_leak", "rubric_leak", "no"),
        ("suspect", "suspect", "no"),
        ("reward_hack", "reward_hack", "no"),
        ("contamination", "contaminated", "no"),
        ("contaminated_cross_run", "contaminated", "no"),
        ("bug", "wrong", "no"),
        ("fail_honest", "wrong", "no"),
        ("fail_forbidden_op_tripwire", "forbidden_op", "no"),
        ("timeout_unverified", "not_judged", "no"),
        ("fine", "unknown", "no"),
        ("clean-ish", "unknown", "no"),
        ("[clean]", "unknown", "no"),
    ],
)
def test_it_normalises_the_verdict_word(word, verdict, publishable):
    audit = read(verdict=word)
    assert (audit.verdict, audit.publishable) == (verdict, publishable)


def test_it_calls_a_missing_verdict_unknown():
    audit = read(verdict=None)
    assert (audit.verdict_text, audit.verdict, audit.publishable) == (None, "unknown", "no")


def test_it_keeps_a_comment_behind_the_verdict():
    audit = read(verdict="interesting  # by accident, not on purpose")
    assert audit.verdict == "interesting"
    assert audit.verdict_comment == "by accident, not on purpose"


@pytest.mark.parametrize(
    "line",
    [
        "publish_grade: false",
        "board_eligible: false",
        "leaderboard_eligible: false",
        "published: false",
        "publishable: false",
        "publishable: no",
        "publish_grade: maybe",
        "publish_grade: 0",
        "measurement_status: in_run_contended",
        "measurement_status: sequential_isolated_wrong_hardware_sku",
        "measurement_status: a_new_word",
        "headline_status: pending_isolated_regrade",
        "status: invalid",
        "contamination: contaminated. Read a sibling.",
        "contamination: Confirmed, in full",
        "contamination: perhaps",
        "reward_hack: true",
        "megakernel_authentic: false",
        "isolated_regrade_required: true",
        "empirical_recompute_required: true",
        "empirical_required: true",
        "required_isolated_recompute: run it again alone",
        "timing_contaminated: true",
        "template_mutated: true",
    ],
)
def test_it_does_not_publish_against_a_field_that_says_no(line):
    audit = read(line)
    assert audit.verdict == "clean"
    assert audit.publishable == "no"
    assert audit.blockers == (line.replace(": ", " is ", 1),)


@pytest.mark.parametrize(
    "line",
    [
        "publish_grade: true",
        "publish_grade: null",
        "measurement_status: sequential_isolated",
        "contamination: Clean. Nothing foreign was read.",
        "contamination: No relevant one",
        "contamination: flagged_benign (one probe)",
        "reward_hack: false",
        "megakernel_authentic: true",
        "empirical_recompute_required: false",
        "headline_status: publishable_sequential_isolated_solution_ms",
    ],
)
def test_it_publishes_with_a_field_that_says_yes(line):
    assert read(line).publishable == "yes"


def test_it_takes_only_true_and_false_as_booleans():
    audit = read("correct: no", "on: off", "quoted: 'true'")
    assert audit.correct is False
    assert (audit.raw["on"], audit.raw["quoted"]) == ("off", "true")


def test_it_reads_correct_from_the_first_word_of_a_text():
    assert read("correct: true (rescored later)").correct is True
    assert read("correct: perhaps").correct is None


def test_it_keeps_numbers_as_they_are_written():
    audit = read("peak_fraction: 0.0350", "tolerance: 1e-3", "day: 2026-07-01")
    assert audit.score_text == "0.0350"
    assert (audit.raw["tolerance"], audit.raw["day"]) == ("1e-3", "2026-07-01")


def test_it_takes_no_score_from_a_word():
    assert read("peak_fraction: null", "speedup_clean: regrade_failed").score_text is None
    assert read("speedup_clean: 1.3640   # alone").score_text == "1.3640"


@pytest.mark.parametrize("field", ["auditor", "audited_by", "finalizer", "regraded_by"])
def test_it_knows_all_spellings_of_the_auditor(field):
    assert read(f"{field}: someone").auditor == "someone"


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("gpu: RTX PRO 6000 Blackwell (SM120)", "RTX_PRO_6000"),
        ("gpu: H100", None),
        ("gpu: H100 SXM5", "H100_SXM"),
        ("gpu: H100 (PCIe 80GB)", "H100"),
        ("gpu_name: NVIDIA H100 80GB HBM3", "H100_SXM"),
        ("gpu: some card", None),
        ("gpu: B200\ngpu_name: NVIDIA H100 PCIe", None),
    ],
)
def test_it_names_a_gpu_only_where_it_is_proven(line, gpu):
    assert read(line).gpu == gpu


def test_it_reads_quotes_and_evidence():
    audit = read(
        "quotes:",
        "  - file: solution.py",
        "    lines: [3, 7]",
        "    label: the kernel",
        "    text: |",
        "      def f():",
        "        pass",
        "  - just a text",
        "evidence:",
        "  - one",
        "  - two",
        "timing_evidence: three",
    )
    assert audit.quotes[0] == Quote(file="solution.py", lines=(3, 7), label="the kernel", text="def f():\n  pass")
    assert audit.quotes[1] == Quote(text="just a text")
    assert audit.evidence == ("one", "two", "three")


def test_it_keeps_other_keys_as_text():
    audit = read("final_regrade: {ms: [1.5, 2]}", "note: text", "flag: true")
    assert audit.raw["final_regrade"] == '{"ms":["1.5","2"]}'
    assert (audit.raw["note"], audit.raw["flag"]) == ("text", "true")


def test_it_takes_the_run_id_from_the_name_where_the_file_has_none():
    audit = read(run_id=None)
    assert (audit.run_id, audit.run_id_source) == (RUN_ID, "name")


def test_it_drops_the_board_suffix_of_a_name():
    audit = read(name=f"{RUN_ID}_b200.yaml")
    assert (audit.run_id, audit.run_id_source, audit.gpu) == (RUN_ID, "file", "B200")


def test_it_lets_the_name_win_over_another_id_inside():
    other = RUN_ID.replace("codex", "claude")
    audit = read(run_id=other)
    assert (audit.run_id, audit.run_id_source, audit.inner_run_id) == (RUN_ID, "name", other)


def test_it_takes_the_id_inside_where_the_name_is_none():
    assert read(name="audit.yaml").run_id == RUN_ID


def test_it_reads_an_audit_of_a_whole_wave_without_a_run():
    audit = read("status: invalid", name="20260725_wave_INVALID.yaml", run_id=None, verdict=None)
    assert (audit.run_id, audit.run_id_source, audit.publishable) == (None, None, "no")


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        (["method: sweep: 8 reads of it's kin"], "method", "sweep: 8 reads of it's kin"),
        (["method: sweep: 8 reads", "  and one more", "notes: x"], "method", "sweep: 8 reads and one more"),
        (["method: sweep: 8 reads  # by hand"], "method", "sweep: 8 reads"),
    ],
)
def test_it_quotes_a_plain_value_with_a_colon(lines, key, value):
    audit = read(*lines)
    assert (audit.status, audit.verdict, audit.raw[key]) == ("repaired", "clean", value)
    assert audit.repairs == ("line 3: quoted a plain value that holds a colon",)
    assert audit.error_line == 3


def test_it_quotes_a_wrapped_list_item_with_a_colon():
    audit = read(
        "evidence:", "  - fine", "  - Found the balance: rank r takes", "    two halves,", "    and so on.", "  - last"
    )
    assert audit.status == "repaired"
    assert audit.evidence == ("fine", "Found the balance: rank r takes two halves, and so on.", "last")
    assert audit.repairs == ("line 5: quoted a plain list item that holds a colon",)


def test_it_indents_a_block_text_that_falls_back_behind_its_first_line():
    audit = read(
        "quotes:",
        "  - file: a.py",
        "    text: |",
        "      x = 1",
        "",
        "  def f():",
        "      pass",
        "  - file: b.log",
    )
    assert audit.status == "repaired"
    assert audit.quotes[0].text == "x = 1\n\ndef f():\n    pass"
    assert audit.quotes[1].file == "b.log"


def test_it_keeps_the_items_apart_when_it_indents_a_block_text():
    audit = read("evidence:", "  - |", "      x", "    y", "  - z")
    assert audit.evidence == ("x\ny\n", "z")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["a: 1", "a: 2"], 4),
        (["a: [1, 2"], 4),
        (["a: *b"], 3),
        (["a: &b c"], 3),
        (["a: !!python/object/apply:os.system [x]"], 3),
        (["a: !!binary aGk="], 3),
        (["--- ", "b: 1"], 3),
        (['a: "\\0"'], 3),
        (["a: \x07"], 3),
        (["? [a]", ": b"], 3),
        (["a: " + "[" * 100 + "]" * 100], 3),
        (["a: 'x", "b: y"], 5),
    ],
)
def test_it_keeps_what_it_cannot_read_with_the_place(lines, line):
    audit = read(*lines)
    assert (audit.status, audit.verdict, audit.publishable) == ("unreadable", "unreadable", "no")
    assert audit.error_line == line
    assert audit.error_column >= 1
    assert (audit.run_id, audit.verdict_text) == (RUN_ID, "clean")


def test_it_keeps_what_is_not_utf8_as_unreadable():
    audit = read_audit(b"verdict: clean\nx: \xff\n", f"{RUN_ID}.yaml", None)
    assert (audit.status, audit.error_line, audit.error_column) == ("unreadable", 2, 4)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text\n"])
def test_it_keeps_a_file_without_a_table_as_unreadable(text):
    assert read_audit(text.encode(), f"{RUN_ID}.yaml", None).status == "unreadable"


def test_it_takes_windows_line_ends():
    audit = read_audit(make_text("method: a: b").replace("\n", "\r\n").encode(), f"{RUN_ID}.yaml", None)
    assert (audit.verdict, audit.status, audit.raw["method"]) == ("clean", "repaired", "a: b")


def test_it_does_not_take_another_file_for_an_audit():
    with pytest.raises(AuditError, match="no audit"):
        read_audit(b"name: a\njobs: []\n", "ci.yaml", None)


def test_it_refuses_a_file_that_is_too_long():
    with pytest.raises(AuditError, match="bytes long"):
        read_audit(b" " * (MAX_AUDIT_BYTES + 1), f"{RUN_ID}.yaml", None)


@pytest.mark.parametrize(
    "line", ["verdict: clean" + " " * 200_000 + "x", "method: a: b" + " " * 200_000 + "x", "  " * 100_000 + "- a: b: c"]
)
def test_it_reads_a_padded_line_in_little_time(line):
    start = time.perf_counter()
    read(line, verdict=None)
    assert time.perf_counter() - start < 2


def test_it_does_not_repair_where_a_key_would_be_lost():
    assert read("method: a: b", "method: c: d").status == "unreadable"
