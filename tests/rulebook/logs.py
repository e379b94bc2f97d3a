"""Cases of rules on logs: single shapes, the build of the log, forged lines, and the check."""

from grading.integrity import Context
from grading.logs import read_check
from grading.problem import load_problem
from grading.record import ArchiveFile, RunKey
from tests.factories import headline_of, make_benchmark, make_context, make_record, make_times

W4 = load_problem("hard", "07_w4a16_gemm")
TOPK = load_problem("hard", "05_topk_bitonic")
MOE = load_problem("hard", "06_sonic_moe_swiglu")
LOG = make_benchmark(W4)
PLAIN = make_benchmark(W4, with_events=False)
SCORE = headline_of(LOG)
LINES = LOG.splitlines(True)


def log(text: str, **fields: object) -> Context:
    return make_context(make_record(log=text, **fields))


def edit(old: str, new: str, **fields: object) -> Context:
    assert old in LOG, old
    return log(LOG.replace(old, new, 1), **fields)


def times(*values: float) -> Context:
    return log(make_benchmark(W4, times=list(values)))


def check(text: str | bytes, **fields: object) -> Context:
    data = text if isinstance(text, bytes) else text.encode()
    return make_context(make_record(check=read_check(data, "check.log"), **fields), files={"check.log": data})


def seeded(text: str, day: str = "20260901") -> Context:
    key = RunKey("hard", "H200", f"{day}_120000_codex_gpt-test_05_topk_bitonic")
    return make_context(make_record(TOPK, key=key, check=read_check(text.encode(), "check.log")))


def moved(first: int, second: int) -> str:
    """The log with all lines of two shapes exchanged."""
    blocks = [[line for line in LINES if f"shape={index} " in line] for index in range(5)]
    blocks[first], blocks[second] = blocks[second], blocks[first]
    return "".join(line for block in blocks for line in block) + "".join(LINES[-2:])


def quick_check(seconds: int) -> Context:
    return make_context(make_record(MOE, check_elapsed_seconds=seconds))


def source(text: str) -> Context:
    return make_context(files={"solution.py": text.encode()})


def fraction_of(index: int) -> str:
    return next(line for line in LINES if line.startswith(f"shape={index} solution_peak_fraction"))


def floor_ms(share: float) -> Context:
    """A run whose first shape takes the given multiple of its floor."""
    floor = make_context().score.shapes[0].floor_ms or 0.0
    return times(floor * share, *make_times(W4)[1:])


LINE_1 = next(line for line in LINES if line.startswith("shape=1 variant=solution"))
FRACTION_1 = fraction_of(1)
START_1 = next(line for line in LINES if "variant_start shape=1" in line)
END_1 = next(line for line in LINES if "variant_end shape=1" in line)
CUT_FRACTION = FRACTION_1.split("=")[2].strip()
BIGGER_FRACTION = f"{float(CUT_FRACTION) + 0.01:.4f}"
PASS_LATER = "PROPERTY_SEED: 7\n"

SPEAKS = [
    ("shape.inconsistent", "ms against its own rate", lambda: edit("ms=0.100\n", "ms=0.102\n")),
    ("shape.inconsistent", "the event against the line", lambda: edit("ms=0.100000", "ms=0.100600")),
    ("shape.inconsistent", "the two rates against each other", lambda: rate_edited(10)),
    ("shape.duplicate", "a second line", lambda: edit(LINE_1, LINE_1 * 2)),
    ("shape.unknown", "a shape too many", lambda: edit(LINE_1, LINE_1 + LINE_1.replace("shape=1", "shape=9"))),
    ("shape.below_floor", "half the floor", lambda: floor_ms(0.5)),
    ("shape.below_floor", "five percent below it", lambda: floor_ms(0.95)),
    ("shape.near_floor", "five percent above it", lambda: floor_ms(1.05)),
    ("shape.below_launch", "a microsecond", lambda: times(0.001, *make_times(W4)[1:])),
    (
        "shape.fraction_disagrees",
        "one unit too many",
        lambda: edit(FRACTION_1, FRACTION_1.replace(CUT_FRACTION, up(2))),
    ),
    ("shape.order", "two shapes exchanged", lambda: log(moved(1, 2))),
    ("shape.fraction_missing", "four fractions of five", lambda: edit(FRACTION_1, "")),
    ("score.differs_from_fractions", "a fraction edited", lambda: edit(CUT_FRACTION, BIGGER_FRACTION)),
    ("log.missing", "a score and no log", lambda: make_context(make_record(log="", score_text="0.1"))),
    ("log.malformed", "a number that is none", lambda: edit("ms=0.100\n", "ms=1e400\n")),
    ("log.malformed", "digits of another script", lambda: edit("ms=0.100\n", "ms=٣\n")),
    ("log.malformed", "nan", lambda: edit("ms=0.100\n", "ms=nan\n")),
    ("log.forged", "a second score", lambda: log(f"peak_fraction: 0.9731\n{LOG}")),
    ("log.malformed", "a glued score", lambda: log(LOG + "done peak_fraction: 0.9731\n")),
    ("log.forged", "an escape sequence in a marker", lambda: edit("RESULT: LOW", "RESULT: LOW\x1b[2K")),
    ("log.forged", "a carriage return over a marker", lambda: edit("RESULT: LOW", "RESULT: OK\rRESULT: LOW")),
    ("log.forged", "a NUL", lambda: edit("RESULT: LOW\n", "RESULT: LOW\n\0\n")),
    ("log.forged", "PASS twice", lambda: check("PASS\nPASS\n")),
    ("log.order", "a shape after the score", lambda: log(LOG + LINE_1)),
    ("log.no_score", "cut before the score", lambda: log("".join(LINES[:-2]), score_text=SCORE)),
    ("log.no_score", "a device line after the score", lambda: log(LOG + "PROPERTY_SEED: 1\n")),
    ("log.result_word", "OK far below the threshold", lambda: edit("RESULT: LOW", "RESULT: OK", score_text="0.0100")),
    ("log.result_word", "LOW above the threshold", lambda: log(LOG, score_text="0.4000")),
    ("log.events", "no start", lambda: edit(START_1, "")),
    ("log.events", "no end", lambda: edit(END_1, "")),
    ("log.events", "two starts", lambda: edit(START_1, START_1 * 2)),
    ("log.events", "an unknown variant", lambda: edit(START_1, START_1 + START_1.replace("solution", "turbo"))),
    ("log.events", "the solution failed", lambda: edit(END_1, failed_event())),
    ("log.events", "a baseline before the solution", lambda: edit(START_1, baseline_events() + START_1)),
    ("check.failed", "recorded", lambda: make_context(make_record(correct=False))),
    ("check.failed", "a FAIL line beside PASS", lambda: check("FAIL: shape 0 {} seed 1 case nominal: bad\nPASS\n")),
    ("check.failed", "an exit code", lambda: make_context(make_record(check_exit_code=1))),
    ("check.missing", "no log", lambda: make_context(make_record(check=None))),
    ("check.missing", "no PASS line", lambda: check("all good\n")),
    ("check.missing", "not recorded", lambda: make_context(make_record(correct=None))),
    ("check.stress_disabled", "the source", lambda: source("import os\nos.environ['KBH_NUMERIC_STRESS'] = '0'\n")),
    (
        "check.stress_disabled",
        "by putenv",
        lambda: source("from os import putenv as p\np('KBH_NUMERIC_STRESS', '0')\n"),
    ),
    ("check.stress_disabled", "the grader", lambda: make_context(files={"environment.json": b'{"numeric_stress": 0}'})),
    ("check.too_short", "one second", lambda: quick_check(1)),
    ("check.seed", "none although due", lambda: seeded("PASS\n")),
    ("check.seed", "two", lambda: seeded("PROPERTY_SEED: 1\nPROPERTY_SEED: 2\nPASS\n")),
    ("check.seed", "too large", lambda: seeded(f"PROPERTY_SEED: {2**64}\nPASS\n")),
    ("check.pass_not_last", "a marker behind it", lambda: check("PASS\nPROPERTY_SEED: 7\n")),
    ("check.pass_not_last", "a traceback behind it", lambda: check("PASS\nTraceback (most recent call last):\n")),
]


def up(units: int) -> str:
    return f"{float(CUT_FRACTION) + units * 1e-4:.4f}"


def rate_edited(thousandths: int) -> Context:
    """A log without milliseconds that could decide, in which one rate was raised by some last places."""
    value = LINE_1.split("tflops=")[1].split(" ")[0]
    raised = f"{float(value) + thousandths * 1e-3:.3f}"
    return log(PLAIN.replace(LINE_1, LINE_1.replace(f"tflops={value}", f"tflops={raised}")))


def failed_event() -> str:
    head = END_1.split(" elapsed_s")[0].replace("variant_end", "variant_error")
    return f"{head} elapsed_s=0.500 error=RuntimeError\n"


def baseline_events() -> str:
    return (START_1 + END_1).replace("variant=solution", "variant=eager")


TRACE = "Traceback (most recent call last):\n  ...\nRuntimeError: build failed, falling back\nPASS\n"
CHATTY = "Building extension...\nthis will PASS the tests\nwarning: speed up your build\n" + LOG

SILENT = [
    ("shape.inconsistent", "the harness's own digits", lambda: log(LOG)),
    ("shape.inconsistent", "within the last place", lambda: rate_edited(0)),
    ("shape.duplicate", "line, event and fraction of one shape", lambda: log(LOG)),
    ("shape.unknown", "an eager variant of a known shape", lambda: edit(LINE_1, LINE_1 + eager_line())),
    ("shape.below_floor", "just below, within the slack", lambda: floor_ms(0.98)),
    ("shape.near_floor", "the usual", lambda: floor_ms(1.2)),
    ("shape.below_launch", "three microseconds", lambda: times(0.003, *make_times(W4)[1:])),
    ("shape.fraction_disagrees", "its own fractions", lambda: log(LOG)),
    ("shape.order", "in order", lambda: log(LOG)),
    ("shape.fraction_missing", "an old log without any", lambda: log(without("solution_peak_fraction"))),
    ("score.differs_from_fractions", "its own fractions", lambda: log(LOG)),
    ("score.differs_from_fractions", "rates that disagree already", lambda: log(LOG, score_text="0.5123")),
    ("log.missing", "a failed run", lambda: make_context(make_record(log="", correct=False, score_text=None))),
    ("log.malformed", "library output", lambda: log(CHATTY)),
    ("log.forged", "library output with the words in a sentence", lambda: log(CHATTY)),
    ("log.forged", "a progress bar with carriage returns", lambda: log("10%\r50%\r100%\n" + LOG)),
    ("log.order", "the result word", lambda: log(LOG)),
    ("log.order", "a baseline after its shape", lambda: edit(LINE_1, LINE_1 + eager_line())),
    ("log.no_score", "whole", lambda: log(LOG)),
    ("log.no_score", "a warning after the score", lambda: log(LOG + "WARN: slow disk\n")),
    ("log.result_word", "the word of its score", lambda: log(LOG)),
    ("log.events", "an old log without any", lambda: log(PLAIN)),
    (
        "log.events",
        "a baseline that failed after the solution",
        lambda: edit(FRACTION_1, failed_baseline() + FRACTION_1),
    ),
    ("check.failed", "passed", lambda: check("PASS\n", check_exit_code=0)),
    ("check.missing", "passed", lambda: check("cuda_language: ok framework=triton evidence=a\nPASS\n")),
    ("check.stress_disabled", "the switch in a comment", lambda: source("# KBH_NUMERIC_STRESS=0 would cheat\nx = 1\n")),
    ("check.stress_disabled", "another variable", lambda: source("import os\nos.environ['TRITON_CACHE_DIR'] = '/t'\n")),
    ("check.too_short", "a fast whole check", lambda: quick_check(9)),
    ("check.too_short", "not recorded", lambda: make_context(make_record(MOE))),
    ("check.seed", "one", lambda: seeded(f"PROPERTY_SEED: {2**64 - 1}\nPASS\n")),
    ("check.seed", "before the stage existed", lambda: seeded("PASS\n", "20260801")),
    ("check.pass_not_last", "a traceback before it, while falling back", lambda: check(TRACE)),
    ("check.pass_not_last", "text of a library behind it", lambda: check("PASS\n[W socket.cpp] closing\n")),
]


def without(text: str) -> str:
    return "".join(line for line in LINES if text not in line)


def eager_line() -> str:
    return LINE_1.replace("variant=solution", "variant=eager")


def failed_baseline() -> str:
    return START_1.replace("solution", "sota") + failed_event().replace("variant=solution", "variant=sota")


FILES = (ArchiveFile("solution.py", "0" * 64, 1, "solution"),)
