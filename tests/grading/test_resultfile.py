"""``result.json`` of every age, and what is refused in it."""

import datetime
import json

import pytest

from grading.record import RecordError, RunKey
from grading.resultfile import MAX_RESULT_BYTES, inner_run_id, read_environment, read_result
from grading.runid import check_run_id, is_run_id, parse_run_id

RUN_ID = "20260701_120000_codex_lab_model-1_07_w4a16_gemm"


def make_key(run_id=RUN_ID, deck="hard", gpu="H100"):
    return RunKey(deck, gpu, run_id)


def make_fields(**changes):
    fields = {"run_id": RUN_ID, "problem": "07_w4a16_gemm", "harness": "codex", "model": "lab/model-1"}
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def make_text(tail="", **changes):
    return (json.dumps(make_fields(**changes))[:-1] + tail + "}").encode()


def read(tail="", **changes):
    return read_result(make_text(tail, **changes), make_key())


def refusal(tail="", **changes):
    with pytest.raises(RecordError) as caught:
        read(tail, **changes)
    return str(caught.value)


def test_it_reads_the_fields_of_the_shared_writer():
    record = read(
        reasoning_effort="max", has_solution=True, correct=False, failure_reason="check_failed", check_exit_code=1
    )
    assert (record.effort, record.has_solution, record.correct) == ("max", True, False)
    assert (record.failure_reason, record.check_exit_code) == ("check_failed", 1)
    assert record.key == make_key()


def test_it_keeps_what_an_older_file_lacks_as_absent():
    record = read()
    assert (record.correct, record.score_text, record.session_complete, record.regrade) == (None, None, None, None)
    assert record.effort == ""


@pytest.mark.parametrize("text", ["0.0135", "0.01350", "1.961", "0", "12", "1e-05", "0.19090000000000001"])
def test_it_keeps_the_score_as_the_text_of_the_file(text):
    assert read(f', "peak_fraction": {text}').score_text == text


def test_it_keeps_a_score_of_zero_apart_from_none():
    assert read(', "peak_fraction": 0.0').score_text == "0.0"
    assert read(', "peak_fraction": null').score_text is None


@pytest.mark.parametrize("value", ['"0.5"', "true", "[]", "{}", "1" * 50])
def test_it_refuses_a_score_that_is_no_number(value):
    message = refusal(f', "peak_fraction": {value}')
    assert message.startswith("result.json: peak_fraction is ")
    assert "need a number" in message


@pytest.mark.parametrize(
    ("field", "value", "need"),
    [
        ("correct", "true", "true, false or null"),
        ("correct", 1, "true, false or null"),
        ("has_solution", "yes", "true, false or null"),
        ("check_exit_code", "0", "a whole number or null"),
        ("elapsed_seconds", 1.5, "a whole number or null"),
        ("elapsed_seconds", True, "a whole number or null"),
        ("benchmark_exit_code", 10**30, "a whole number or null"),
        ("model", None, "a text"),
        ("problem", 7, "a text"),
        ("usage", [], "an object or null"),
        ("regrade", "later", "an object or null"),
    ],
)
def test_it_names_field_value_and_what_is_accepted(field, value, need):
    message = refusal(**{field: value})
    assert message.startswith(f"result.json: {field} is ")
    assert message.endswith(f"need {need}")


@pytest.mark.parametrize("field", ["problem", "harness", "model"])
def test_it_names_a_field_that_is_missing(field):
    assert f"{field} is absent" in refusal(**{field: ...})


def test_it_refuses_an_empty_model():
    assert "need texts" in refusal(model="")


def test_it_reads_nan_as_absent_and_notes_it():
    record = read(', "peak_fraction": NaN, "output_tokens_per_second": Infinity')
    assert record.score_text is None
    assert record.notes == (
        "result.json: peak_fraction is NaN; read as absent",
        "result.json: output_tokens_per_second is Infinity; read as absent",
    )


def test_it_notes_a_repeated_key():
    record = read(', "correct": true, "correct" : false')
    assert record.correct is False
    assert record.notes == ("result.json: 'correct' is given twice; the last value stands",)


def test_it_notes_a_repeated_key_one_level_down():
    assert read(', "usage": {"input_tokens": 1, "input_tokens": 2}').notes


def test_it_keeps_the_score_text_beside_an_odd_field():
    assert read(', "peak_fraction": 0.0100, "x": NaN').score_text == "0.0100"


def test_it_takes_a_byte_order_mark_with_a_note():
    record = read_result(b"\xef\xbb\xbf" + make_text(), make_key())
    assert record.notes == ("result.json: starts with a byte order mark",)


def test_it_keeps_unknown_keys_as_compact_json():
    record = read(', "hand_added": {"a": [1, 2.50]}, "start_epoch": 17')
    assert record.extra == {"hand_added": '{"a":[1,2.50]}', "start_epoch": "17"}


def test_it_leaves_out_an_unknown_key_that_is_too_long():
    record = read(essay="x" * 5000)
    assert record.extra == {}
    assert "'essay' left out" in record.notes[0]


def test_it_reads_both_spellings_of_the_cost():
    assert read(', "usage": {"cost_usd": 1.5}').usage.cost_usd == 1.5
    assert read(', "usage": {"total_cost_usd": 2}').usage.cost_usd == 2.0
    assert read(', "usage": {"input_tokens": null}').usage.cost_usd is None


def test_it_reads_a_regrade_with_the_values_it_replaced():
    record = read(
        ', "regrade": {"at": "2026-07-02T00:00:00+00:00", "host": "h", "gpu_index": 0, "gpu_name": "NVIDIA H100 PCIe",'
        ' "mode": "sequential_isolated", "contended": {"correct": true, "peak_fraction": 0.0500, "check_exit_code": 0}}'
    )
    assert record.regrade.contended_score_text == "0.0500"
    assert (record.regrade.contended_correct, record.regrade.has_contended) == (True, True)
    assert record.device_name == "NVIDIA H100 PCIe"
    assert record.extra == {"regrade.contended.check_exit_code": "0"}


def test_it_takes_the_device_from_a_field_added_by_hand():
    assert read(gpu_name="NVIDIA B200").device_name == "NVIDIA B200"


def test_it_reads_times_with_an_offset():
    record = read(started_at="2026-07-01T12:00:00+02:00", finished_at="2026-07-01T12:00:00Z")
    assert record.started_at == datetime.datetime(2026, 7, 1, 10, tzinfo=datetime.UTC)
    assert record.finished_at.tzinfo is not None


def test_it_never_guesses_the_zone_of_a_naive_time():
    record = read(started_at="2026-07-01T12:00:00")
    assert record.started_at is None
    assert "without an offset" in record.notes[0]


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2026-W01-1"])
def test_it_refuses_a_time_that_is_none(text):
    assert "started_at is " in refusal(started_at=text)


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud800", "\\udfff\\ud800"])
def test_it_refuses_texts_that_no_database_takes(escape):
    assert refusal(f', "regrade_note": "{escape}"')


def test_it_takes_an_escaped_backslash_before_u0000():
    assert read(', "regrade_note": "\\\\u0000"').regrade_note == "\\u0000"


@pytest.mark.parametrize("value", ["a\nb", "a\x1b[0m", "a\u202eb", "x" * 201])
def test_it_refuses_a_name_that_cannot_be_shown(value):
    assert "model" in refusal(model=value)


def test_it_takes_a_name_in_any_script():
    assert read(model="混元-3").model == "混元-3"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{", b"\xff\xfe{}", b'{"a":' * 50_000, b"{}x", b'{"model": "\xff"}']
)
def test_it_refuses_what_is_no_json_object(data):
    with pytest.raises(RecordError, match=r"^result\.json"):
        read_result(data, make_key())


def test_it_refuses_a_file_that_is_too_long():
    with pytest.raises(RecordError, match="bytes long"):
        read_result(b" " * (MAX_RESULT_BYTES + 1), make_key())


def test_it_keeps_another_run_id_inside_beside_the_key():
    other = RUN_ID.replace("120000", "130000")
    assert read(run_id=other).inner_run_id == other
    assert read().inner_run_id is None


def test_it_names_the_accepted_problems_for_a_retired_one():
    message = refusal(problem="04_kahan_softmax")
    assert "retired in deck hard" in message
    assert "07_w4a16_gemm" in message


def test_it_names_the_accepted_problems_for_an_unknown_one():
    assert "not in deck hard" in refusal(problem="99_nothing")


def test_it_reads_the_run_id_inside():
    assert inner_run_id(make_text()) == RUN_ID
    assert inner_run_id(b"{}") is None
    with pytest.raises(RecordError, match="run_id is 3"):
        inner_run_id(b'{"run_id": 3}')


def test_it_reads_an_environment_and_ignores_other_keys():
    environment = read_environment(b'{"device_name": "NVIDIA H200", "peak_version": 2, "clock": [1]}')
    assert (environment.device_name, environment.peak_version, environment.driver) == ("NVIDIA H200", 2, None)


def test_it_names_the_field_of_an_environment_that_is_wrong():
    with pytest.raises(RecordError, match=r'environment\.json: peak_version is "2"; need a whole number or null'):
        read_environment(b'{"peak_version": "2"}')


def test_it_parses_a_run_id_from_both_ends():
    parts = parse_run_id("20260701_120000_or-fable_lab_model_1m__03_paged_attention", "hard")
    assert (parts.harness, parts.model_slug, parts.problem, parts.suffix) == (
        "or-fable",
        "lab_model_1m_",
        "03_paged_attention",
        "",
    )


def test_it_parses_a_repeated_attempt():
    assert parse_run_id(RUN_ID + "_4711_2", "hard").suffix == "4711_2"


def test_it_refuses_a_run_id_without_a_known_problem():
    with pytest.raises(RecordError, match="need one that ends in a problem of deck hard"):
        parse_run_id("20260701_120000_a_b_99_none", "hard")


@pytest.mark.parametrize(
    "text", ["", "x", "20260701_120000_a", "20261301_120000_a_b", "20260701_250000_a_b", "20260701_120000_A_b"]
)
def test_it_knows_what_is_no_run_id(text):
    assert not is_run_id(text)


@pytest.mark.parametrize("tail", ["../x", "a b", "a\nb", "a/b", "x" * 200, "<b>", "\u202e"])
def test_it_refuses_a_run_id_that_is_no_plain_name(tail):
    with pytest.raises(RecordError, match=r"^name is "):
        check_run_id("20260701_120000_a_" + tail, "name")
