"""The readers over the shared corpus, and under arbitrary bytes."""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grading.archive import AuditItem, RunItem, read_paths
from grading.auditfile import AuditError, read_audit
from grading.audityaml import YamlFault, read_or_repair
from grading.logs import read_benchmark, read_check
from grading.record import RecordError, RunKey, decode, encode
from grading.resultfile import inner_run_id, read_environment, read_result
from grading.runid import parse_run_id

KEY = RunKey("hard", "H100", "20260701_120000_codex_model-1_07_w4a16_gemm")
LINES = [
    "shape=0 variant=solution tflops=1.000 gbps=2.000 ms=0.500",
    "shape=0 solution_peak_fraction=0.2500",
    "benchmark_event event=variant_end shape=0 variant=eager ts=2026-07-01T10:00:00 elapsed_s=0.500 ms=0.100000",
    "shape ctx=2048: solution 1.000 ms/tok (9 tok/s) | baseline 2.000 ms/tok | speedup 2.00x",
    "trial seed=1 sps=1,000 elapsed=1.000s final_return=2.000",
    "steps_per_second=1,000 exceeds credible cap 9 (x)",
    "device: A x4 (visible=4, distinct=A)",
    "RANK 0 FAIL: x",
    "PROPERTY_SEED: 1",
    "peak_fraction: 0.2500",
    "PASS",
    "check: PASS",
    "[run_agent] agent exit=1",
]
RESULT = {
    "problem": "07_w4a16_gemm",
    "harness": "codex",
    "model": "m",
    "peak_fraction": 0.5,
    "usage": {"cost_usd": 1.5},
    "regrade": {"contended": {"peak_fraction": 0.1}},
    "started_at": "2026-07-01T00:00:00Z",
}
AUDIT = (
    "run_id: 20260701_120000_codex_m_07_w4a16_gemm\nverdict: clean\nmethod: a: b\n"
    "quotes:\n  - file: a\n    text: |\n      x\n"
)
REPAIRED = {
    "20260507_142049": "line 33: indented 3 lines of the block text that starts at line 24",
    "20260723_080814": "line 3: quoted a plain value that holds a colon",
    "20260723_091218": "line 4: quoted a plain value that holds a colon",
    "20260724_002907": "line 4: quoted a plain value that holds a colon",
    "20260725_122042": "line 12: quoted a plain list item that holds a colon",
    "20260725_124651": "line 12: quoted a plain list item that holds a colon",
}
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def mutated(text):
    """Draw copies of a text with some slices replaced by arbitrary bytes."""
    edits = st.lists(st.tuples(st.integers(0, len(text)), st.integers(0, 12), st.binary(max_size=8)), max_size=6)

    def apply(changes):
        data = text
        for start, length, new in changes:
            data = data[:start] + new + data[start + length :]
        return data

    return edits.map(apply)


@pytest.mark.corpus
def test_it_reads_every_run_of_the_corpus(corpus):
    items = list(read_paths([corpus / "runs"]))
    assert Counter(type(item) for item in items) == {RunItem: 186}
    logs = [log for item in items for log in (item.record.benchmark, item.record.check) if log]
    assert [log.faults for log in logs if log.faults] == []
    assert sum(len(log.measurements) for log in logs) == 2 * 617
    assert [item.record.notes for item in items if item.record.notes] == []


@pytest.mark.corpus
def test_it_names_the_problem_of_every_run_id_of_the_corpus(corpus):
    for item in read_paths([corpus / "runs"]):
        parts = parse_run_id(item.record.key.run_id, item.record.key.deck)
        assert (parts.problem, parts.harness) == (item.record.problem, item.record.harness)


@pytest.mark.corpus
def test_every_record_of_the_corpus_survives_storing(corpus):
    for item in read_paths([corpus / "runs"]):
        assert decode(encode(item.record)) == item.record


@pytest.mark.corpus
def test_it_reads_every_audit_of_the_corpus(corpus):
    items = list(read_paths([corpus / "audits"]))
    assert Counter(type(item) for item in items) == {AuditItem: 326}
    audits = [item.audit for item in items]
    repaired = {audit.file[:15]: audit.repairs for audit in audits if audit.status != "read"}
    assert repaired == {stamp: (repair,) for stamp, repair in REPAIRED.items()}
    assert {audit.status for audit in audits} == {"read", "repaired"}
    assert [audit.file for audit in audits if audit.run_id is None] == ["20260725_wave_parallel_INVALID.yaml"]
    assert [audit.file for audit in audits if audit.verdict == "unknown"] == ["20260725_wave_parallel_INVALID.yaml"]


@pytest.mark.corpus
def test_it_counts_what_may_be_published_of_the_corpus(corpus):
    audits = [item.audit for item in read_paths([corpus / "audits"])]
    assert Counter(audit.publishable for audit in audits) == {"yes": 225, "with_acknowledgement": 14, "no": 87}
    assert len([audit for audit in audits if audit.verdict == "clean" and audit.blockers]) == 5


@FUZZ
@given(st.binary(max_size=400) | mutated("\n".join(LINES).encode()))
def test_no_bytes_make_the_log_readers_raise(data):
    for read in (read_benchmark, read_check):
        log = read(data, "a.log")
        assert all(0 < item.line <= data.count(b"\n") + 1 for item in (*log.markers, *log.faults))


@FUZZ
@given(st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=12))
def test_a_log_line_counts_only_as_a_whole_line(lines):
    text = "\n".join(lines)
    whole = text.split("\n")
    log = read_benchmark(text.encode(), "a.log")
    for measurement in log.measurements:
        assert whole[measurement.readings[0].line - 1].removesuffix("\r") in LINES
    assert [marker.line for marker in log.named("PASS")] == [
        number for number, line in enumerate(whole, 1) if line in ("PASS", "PASS\r")
    ]


@FUZZ
@given(st.binary(max_size=300) | mutated(json.dumps(RESULT).encode()))
def test_no_bytes_make_the_result_reader_raise_anything_else(data):
    for read in (lambda: read_result(data, KEY), lambda: inner_run_id(data), lambda: read_environment(data)):
        try:
            read()
        except RecordError as error:
            assert str(error)


@FUZZ
@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists),
    st.sampled_from(list(RESULT)),
)
def test_no_value_makes_the_result_reader_raise_anything_else(value, field):
    try:
        record = read_result(json.dumps(RESULT | {field: value}).encode(), KEY)
    except RecordError:
        return
    assert decode(encode(record)) == record


@FUZZ
@given(st.binary(max_size=300) | mutated(AUDIT.encode()), st.sampled_from(["a.yaml", "20260701_x.yaml"]))
def test_no_bytes_make_the_audit_reader_raise_anything_else(data, name):
    try:
        audit = read_audit(data, name, None)
    except AuditError:
        return
    assert audit.status != "unreadable" or audit.publishable == "no"


@FUZZ
@given(mutated(AUDIT.encode()).map(lambda data: data.decode("utf-8", "replace")))
def test_a_repair_never_changes_a_word(text):
    try:
        found = read_or_repair(text)
    except YamlFault as fault:
        assert fault.line >= 1
        return
    if found.repairs:
        written = "".join(text.split())
        assert all("".join(key.split()) in written for key in found.table)
