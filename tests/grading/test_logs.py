"""The log readers: every dialect's lines, and what must never count."""

import time

import pytest

from grading.logs import MAX_FAULTS, MAX_LINES, read_benchmark, read_check


def make_shape_line(shape="0", variant="solution", tflops="12.500", gbps="3.250", ms="0.125"):
    return f"shape={shape} variant={variant} tflops={tflops} gbps={gbps} ms={ms}"


def make_log(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


def read(*lines):
    return read_benchmark(make_log(*lines), "benchmark.log")


def readings_of(log, index=0):
    return {reading.quantity: reading.text for reading in log.measurements[index].readings}


def markers_of(log):
    return [(marker.name, marker.text, marker.line) for marker in log.markers]


def test_it_reads_a_roofline_shape_line_with_the_printed_digits():
    log = read("noise", make_shape_line(ms="0.010"))
    assert log.measurements[0].variant == "solution"
    assert log.measurements[0].source == "line"
    assert readings_of(log) == {"tflops": "12.500", "gbps": "3.250", "ms": "0.010"}
    assert {reading.line for reading in log.measurements[0].readings} == {2}
    assert log.dialect == "roofline"


def test_it_reads_a_fraction_line_as_a_measurement_of_the_solution():
    log = read("shape=3 solution_peak_fraction=0.0259")
    assert (log.measurements[0].shape, log.measurements[0].source) == ("3", "fraction")
    assert readings_of(log) == {"fraction": "0.0259"}


def test_it_reads_an_end_event_as_a_timing_and_a_marker():
    stamp = "2026-07-01T10:00:00.5+00:00"
    log = read(f"benchmark_event event=variant_end shape=1 variant=eager ts={stamp} elapsed_s=0.512 ms=0.012345")
    assert (log.measurements[0].source, log.measurements[0].variant) == ("event", "eager")
    assert readings_of(log) == {"ms": "0.012345", "elapsed_s": "0.512"}
    assert markers_of(log) == [("variant_end", "1 eager 2026-07-01T10:00:00.5+00:00", 1)]


def test_it_keeps_start_and_error_events_as_markers_without_a_timing():
    stamp = "2026-07-01T10:00:00+00:00"
    log = read(
        f"benchmark_event event=variant_start shape=0 variant=sota ts={stamp}",
        f"benchmark_event event=variant_error shape=0 variant=sota ts={stamp} elapsed_s=0.001 error=RuntimeError",
    )
    assert log.measurements == ()
    assert [marker.name for marker in log.markers] == ["variant_start", "variant_error"]
    assert log.markers[1].text == f"0 sota {stamp} RuntimeError"


def test_it_reads_the_speedup_lines_of_the_top_p_problem():
    log = read(
        make_shape_line(ms="0.1234"),
        make_shape_line(variant="eager", ms="0.2468"),
        "shape=0 speedup_vs_eager=2.0000",
        "geomean_speedup_vs_eager: 2.0000",
    )
    assert log.dialect == "top_p"
    assert readings_of(log, 2) == {"speedup": "2.0000"}
    assert log.named("geomean_speedup_vs_eager")[0].text == "2.0000"


@pytest.mark.parametrize(
    ("tail", "dialect", "names"),
    [
        (
            "ctx_len=2048 decode_steps=64 tok_s=812.345 decode_wall_s=0.0788 prefill_wall_s=0.01 peak_fraction=0.0162",
            "throughput",
            ["ctx_len", "decode_steps", "tok_s", "decode_wall_s", "prefill_wall_s", "fraction"],
        ),
        ("tok_s=10.000 decode_wall_s=1.6000", "throughput", ["tok_s", "decode_wall_s"]),
        (
            "num_envs=4096 horizon=32 sps=1000.500 wall_s=0.1310 peak_fraction=0.0001",
            "steps",
            ["num_envs", "horizon", "sps", "wall_s", "fraction"],
        ),
        ("sps=1000.500 wall_s=0.1310", "steps", ["sps", "wall_s"]),
        ("busbw=123.45 ms=0.4321 peak_fraction=0.2743", "multi", ["busbw", "ms", "fraction"]),
        ("ms=0.4321 anchor_ms=0.6378 speedup=1.4760", "multi", ["ms", "anchor_ms", "speedup"]),
        ("ms=0.6378", "multi", ["ms"]),
    ],
)
def test_it_reads_the_shape_lines_of_the_other_decks(tail, dialect, names):
    log = read(f"shape=2 variant=solution {tail}")
    assert log.dialect == dialect
    assert [reading.quantity for reading in log.measurements[0].readings] == names
    assert log.faults == ()


def test_it_reads_a_mega_line_under_its_context_length():
    log = read("shape ctx=8192: solution 1.250 ms/tok (800 tok/s) | baseline 10.000 ms/tok | speedup 8.00x")
    assert log.measurements[0].shape == "8192"
    assert readings_of(log) == {"ms": "1.250", "tok_s": "800", "baseline_ms": "10.000", "speedup": "8.00"}
    assert log.dialect == "per_token"


def test_it_keeps_a_disagreement_with_the_reference_as_a_marker():
    log = read("shape ctx=2048: solution disagrees with reference (cosine -0.1200 < 0.98)", "peak_fraction: 0.0")
    assert log.measurements == ()
    assert [marker.name for marker in log.markers] == ["disagreement", "peak_fraction"]


def test_it_drops_only_the_separators_of_a_trial_line():
    log = read("trial seed=7 sps=12,345,678 elapsed=1.500s final_return=2.125", "trial sps=9,000 elapsed=0.100s")
    assert readings_of(log) == {"seed": "7", "sps": "12345678", "elapsed_s": "1.500", "final_return": "2.125"}
    assert readings_of(log, 1) == {"sps": "9000", "elapsed_s": "0.100"}
    assert {measurement.source for measurement in log.measurements} == {"trial"}


def test_it_names_the_lines_that_end_a_trial_run():
    log = read(
        "steps_per_second=1,000,000 peak_sps=25,000,000",
        "steps_per_second=9,000,000,000 exceeds credible cap 2,500,000,000 (100x)",
        "final_return=0.900 below floor 1.500 -- training did not learn",
    )
    assert markers_of(log) == [
        ("steps_per_second", "1000000", 1),
        ("peak_sps", "25000000", 1),
        ("steps_per_second", "9000000000", 2),
        ("exceeds_cap", "2,500,000,000 (100x)", 2),
        ("below_floor", "0.900 below floor 1.500 -- training did not learn", 3),
    ]


def test_it_reads_a_launcher_log_with_its_device():
    log = read(
        "[run_agent] 20260725_120000_x_y_01_allreduce_residual budget=3600s lock=/tmp/lock",
        "[launcher] benchmark world_size=4 backend=nccl",
        "[run_agent] agent exit=0",
        "check: PASS",
        "device: NVIDIA Card 80GB x4 (visible=4, distinct=NVIDIA Card 80GB)",
        "RESULT: INVALID_CHECK_FAILED",
        "no_solution",
        "[run_agent] done 20260725_120000_x_y_01_allreduce_residual",
    )
    assert log.device == "NVIDIA Card 80GB x4"
    assert [marker.name for marker in log.markers] == [
        "agent_start",
        "budget_s",
        "launcher",
        "agent_exit",
        "check",
        "device",
        "RESULT",
        "no_solution",
        "agent_done",
    ]


def test_it_says_when_two_device_lines_differ():
    log = read("device: A", "device: B")
    assert log.device == "A"
    assert [fault.line for fault in log.faults] == [2]


def test_it_keeps_every_repeat_of_a_scored_marker():
    log = read("peak_fraction: 0.9000", "RESULT: OK", "peak_fraction: 0.1000")
    assert markers_of(log) == [("peak_fraction", "0.9000", 1), ("RESULT", "OK", 2), ("peak_fraction", "0.1000", 3)]


def test_it_reads_the_markers_of_a_check_log():
    log = read_check(
        make_log(
            "PROPERTY_SEED: 18446744073709551615",
            "cuda_language: ok framework=ptx evidence=a,b",
            "seed 0 ctx 2048: out=0.9999 S=0.9999 cache=1.0000 OK",
            "RANK 3 FAIL: bad",
            "FAIL: shape 0 {'M': 1} seed 42: tolerance exceeded",
            "FAIL",
            "PASS",
        ),
        "check.log",
    )
    assert log.dialect == "check"
    assert [(marker.name, marker.line) for marker in log.markers] == [
        ("PROPERTY_SEED", 1),
        ("cuda_language", 2),
        ("FAIL", 4),
        ("FAIL", 5),
        ("FAIL", 6),
        ("PASS", 7),
    ]
    assert log.faults == ()


@pytest.mark.parametrize("switch", ["KBH_NUMERIC_STRESS=0", "KBH_NUMERIC_STRESS': 'false'", "KBH_NUMERIC_STRESS=no"])
def test_it_marks_a_line_that_shows_the_stress_cases_turned_off(switch):
    line = f"+ Keep env {switch} python check.py"
    assert markers_of(read("a", line)) == [("STRESS_DISABLED", line, 2)]


def test_it_skips_a_line_that_shows_the_stress_cases_turned_on():
    assert read("env KBH_NUMERIC_STRESS=1", "KBH_NUMERIC_STRESS=0.5").markers == ()


def test_it_takes_windows_line_ends_and_a_last_line_without_one():
    log = read_benchmark(make_shape_line().encode() + b"\r\nRESULT: OK\r\npeak_fraction: 0.5000", "benchmark.log")
    assert len(log.measurements) == 1
    assert [marker.line for marker in log.markers] == [2, 3]
    assert log.faults == ()


@pytest.mark.parametrize(
    "line",
    [
        "Resolved 12 packages in 3ms",
        "  [compile fallback] RuntimeError: shape=(3, 4) is wrong",
        "tests PASSED",
        "best speed so far",
        "  [sota unavailable] ImportError: no module",
        "Überraschung",
    ],
)
def test_it_skips_lines_that_are_no_markers(line):
    log = read(line, make_shape_line())
    assert log.faults == ()
    assert len(log.measurements) == 1


@pytest.mark.parametrize(
    "number", ["nan", "inf", "-0.5", "+0.5", "1e400", "1e-3", "٠.٥", "0x10", ".5", "5.", "1_0", ""]
)
def test_it_calls_a_malformed_number_a_fault(number):
    for line in (f"peak_fraction: {number}", make_shape_line(ms=number), f"shape=0 solution_peak_fraction={number}"):
        log = read(line)
        assert (log.measurements, log.markers) == ((), ())
        assert len(log.faults) == 1


def test_it_names_the_malformed_number_without_calling_it_hostile():
    (fault,) = read(make_shape_line(ms="nan")).faults
    assert "malformed number 'nan'" in fault.reason
    assert not fault.is_hostile


@pytest.mark.parametrize(
    "line",
    [
        "\rpeak_fraction: 0.9000",
        "50%\rpeak_fraction: 0.9000",
        "\x1b[2Kpeak_fraction: 0.9000",
        "\x00peak_fraction: 0.9000",
    ],
)
def test_it_calls_a_masked_marker_hostile(line):
    log = read(line)
    assert (log.measurements, log.markers) == ((), ())
    assert log.faults[0].is_hostile


@pytest.mark.parametrize(
    "line",
    [
        "x" + make_shape_line(),
        "done peak_fraction: 0.9000",
        "peak_fraction: 0.9000 peak_fraction: 0.8000",
        "outputPASS",
        "ok PASS",
        "\ufeffpeak_fraction: 0.9000",
        "\u200bPASS",
        "warning: FAIL: hidden",
        "progressRESULT: OK",
    ],
)
def test_it_never_takes_a_glued_marker_and_accuses_nobody_of_it(line):
    log = read(line)
    assert (log.measurements, log.markers) == ((), ())
    assert [fault.is_hostile for fault in log.faults] == [False]


def test_it_tells_the_line_of_a_fault_behind_skipped_lines():
    log = read("a", "b", make_shape_line(), "c", "x" + make_shape_line(), "PASS")
    assert [fault.line for fault in log.faults] == [5]
    assert log.markers[0].line == 6


def test_it_does_not_take_two_spellings_of_a_shape():
    log = read(make_shape_line(shape="00"))
    assert log.measurements == ()
    assert len(log.faults) == 1


def test_it_notes_an_escape_sequence_in_a_line_that_means_nothing():
    log = read("\x1b[31mred\x1b[0m", make_shape_line())
    assert [(fault.line, fault.is_hostile) for fault in log.faults] == [(1, False)]
    assert len(log.measurements) == 1


def test_it_calls_a_nul_byte_hostile_wherever_it_stands():
    (fault,) = read("a\0b").faults
    assert fault.is_hostile


def test_it_notes_bytes_that_are_not_utf8_with_their_line():
    log = read_benchmark(b"fine\n\xff\xfe\n", "benchmark.log")
    assert [(fault.reason, fault.line) for fault in log.faults] == [("bytes that are not UTF-8", 2)]


def test_it_keeps_a_message_in_utf8():
    assert read("FAIL: größer als erlaubt").markers[0].text == "größer als erlaubt"


def test_it_never_uses_a_line_above_64_kib():
    log = read("a", "FAIL: " + "x" * 65536, make_shape_line())
    assert [(fault.line, fault.is_hostile) for fault in log.faults] == [(2, True)]
    assert log.measurements[0].readings[0].line == 3
    assert log.markers == ()


def test_it_takes_a_line_of_exactly_64_kib():
    log = read("PASS", "y" * 65536, "PASS")
    assert [marker.line for marker in log.markers] == [1, 3]
    assert log.faults == ()


def test_it_bounds_what_it_keeps_of_a_flood():
    log = read(*["PASS"] * (MAX_LINES + 10))
    assert len(log.markers) == MAX_LINES
    assert log.faults[0].is_hostile
    log = read(*["xPASS"] * (MAX_FAULTS + 10))
    assert len(log.faults) == MAX_FAULTS + 1


def test_it_shortens_a_long_message():
    assert len(read("FAIL: " + "x" * 5000).markers[0].text) == 1000


@pytest.mark.parametrize(
    "part",
    ["shape=0 ", "peak_fraction: ", "benchmark_event ", "PASS", "s", "trial seed=1", " ", "shape=0 variant=a ", "\r"],
)
def test_its_time_grows_with_the_length_only(part):
    data = (part * (60_000 // len(part)) + "\n").encode() * 30
    start = time.perf_counter()
    read_benchmark(data, "benchmark.log")
    assert time.perf_counter() - start < 5


def test_it_reads_an_empty_log():
    log = read_benchmark(b"", "benchmark.log")
    assert (log.measurements, log.markers, log.faults, log.dialect) == ((), (), (), "none")


def test_it_calls_lines_of_two_decks_mixed():
    assert read(make_shape_line(), "shape=0 variant=solution sps=1.000 wall_s=1.0000").dialect == "mixed"
