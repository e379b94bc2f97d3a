"""Cases of rules on the record, the score, the GPU, regrades, provenance and verification."""

import datetime
import json

import msgspec

from grading.hardware import load_gpus
from grading.integrity import Context, Verification
from grading.interval import exact
from grading.problem import load_problem
from grading.record import ArchiveFile, Environment, Regrade, RunKey, Usage
from grading.score import recompute
from tests.factories import H200_NAME, headline_of, make_benchmark, make_context, make_record, make_times

AT = datetime.datetime(2026, 7, 2, 12, 0, tzinfo=datetime.UTC)
FP8 = load_problem("hard", "01_fp8_gemm")
W4 = load_problem("hard", "07_w4a16_gemm")
NSA = load_problem("cuda", "02_deepseek_nsa")


def run(**fields: object) -> Context:
    return make_context(make_record(**fields))


def scored(text: str) -> Context:
    return run(score_text=text)


def on_gpu(name: str | None, gpu: str = "H200") -> Context:
    return run(gpu=gpu, device_name=name)


def with_log(log: str, **fields: object) -> Context:
    return run(log=log, **fields)


def regraded(log: str | None = None, score: str | None = None, **fields: object) -> Context:
    values = {
        "at": "2026-07-02T12:00:00+00:00",
        "host": "box",
        "gpu_index": 0,
        "gpu_name": H200_NAME,
        "mode": "sequential_isolated",
        "has_contended": True,
    }
    record = make_record(log=log, regrade=Regrade(**{**values, **fields}))
    return make_context(record if score is None else msgspec.structs.replace(record, score_text=score), received_at=AT)


def lock(*events: str) -> Context:
    lines = "".join(f"2026-07-01T12:00:0{second}+00:00 {event}\n" for second, event in enumerate(events))
    return make_context(files={"gpu_lock.log": lines.encode()})


def environment(**fields: object) -> Context:
    return make_context(files={"environment.json": json.dumps(fields).encode()})


def recorded(**fields: object) -> Context:
    return run(environment=Environment(**fields))


def archived(*paths: str) -> Context:
    return run(files=tuple(ArchiveFile(path, "0" * 64, 10, "other") for path in paths))


def verified(outcome: str, score: float | None = None, **fields: object) -> Context:
    value = exact(score) if score is not None else None
    return make_context(verifications=(Verification(outcome, value, **fields),))


def dated(stamp: str) -> Context:
    key = RunKey("hard", "H200", f"{stamp}_codex_gpt-test_07_w4a16_gemm")
    return run(key=key)


def two_devices(index: int | None) -> Context:
    return run(device_name="NVIDIA H200, NVIDIA RTX 3090", regrade=Regrade(gpu_index=index))


def ended(hour: int, log: str) -> Context:
    """A regrade at noon, of a run that ended at an hour of that day; when it arrived is not known."""
    context = regraded(log)
    return make_context(msgspec.structs.replace(context.record, finished_at=AT.replace(hour=hour)))


def graded(*outcomes: str) -> Context:
    return make_context(verifications=tuple(Verification(outcome, exact(OWN)) for outcome in outcomes))


def suspected(*outcomes: str) -> Context:
    """Grades of which every inconclusive one is a suspicion."""
    made = [Verification(word, is_suspicious=word == "inconclusive", reason="T2.clusters") for word in outcomes]
    return make_context(verifications=tuple(made))


def verified_source(outcome: str, digest: str) -> Context:
    record = make_record(
        files=(ArchiveFile("solution.py", "1" * 64, 9, "solution"), ArchiveFile("x", "3" * 64, 9, "other"))
    )
    return make_context(record, verifications=(Verification(outcome, solution_digest=digest),))


def verified_ms(score: float) -> Context:
    metric = msgspec.structs.replace(W4.metric, kind="ms", higher_is_better=False)
    problem = msgspec.structs.replace(W4, metric=metric)
    record = make_record()
    found = recompute(record, problem, "H200", load_gpus()["H200"].current)
    return make_context(record, problem=problem, score=found, verifications=(Verification("passed", exact(score)),))


OWN = headline_of(make_benchmark(W4))
FP8_LOG = make_benchmark(FP8, "RTX_PRO_6000", make_times(FP8, 0.5))
FP8_RUN = make_record(FP8, "RTX_PRO_6000", FP8_LOG)
FP8_OLD = f"{recompute(FP8_RUN, FP8, 'RTX_PRO_6000', load_gpus()['RTX_PRO_6000'].peaks[0]).value.value:.4f}"
SHARED = {"problem": W4, "gpu": "H200"}
RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
HALF_LOG = "".join(line for line in make_benchmark(W4).splitlines(True) if "shape=3" not in line)
ZERO_LOG = "peak_fraction: 0.1\nRESULT: OK\n"
FAST = make_benchmark(NSA, "H200", [0.02] * 6)
AS_PCIE = headline_of(make_benchmark(W4, "H100"))

SPEAKS = [
    ("score.disagrees", "a score no table explains", lambda: scored("0.5123")),
    ("score.disagrees", "the next unit of the last place", lambda: scored(f"{float(OWN) + 2e-4:.4f}")),
    (
        "score.stale_peaks",
        "the peaks of before June",
        lambda: make_context(
            make_record(FP8, "RTX_PRO_6000", FP8_LOG, score_text=FP8_OLD, device_name=RTX),
        ),
    ),
    ("score.wrong_gpu_peaks", "the bandwidth of another card", lambda: scored(AS_PCIE)),
    ("score.incomplete", "one shape is missing", lambda: with_log(HALF_LOG)),
    ("score.not_recomputable", "a log without shape lines", lambda: with_log(ZERO_LOG)),
    ("score.above_peak", "three times the peak", lambda: with_log(make_benchmark(W4, times=[0.001] * 5))),
    ("score.coarse", "three decimals of twelve microseconds", lambda: with_log("shape=0 variant=solution ms=0.012\n")),
    ("score.differs_from_log", "result.json says more", lambda: scored("0.5123")),
    ("run.template_mutated", "the harness says so", lambda: run(template_mutated=True)),
    ("run.contradictory", "correct and check_failed", lambda: run(failure_reason="check_failed")),
    ("run.contradictory", "wrong with a score", lambda: run(correct=False)),
    ("run.contradictory", "correct without a solution", lambda: run(has_solution=False)),
    ("run.contradictory", "a score from a failed benchmark", lambda: run(benchmark_exit_code=1)),
    ("run.incomplete_session", "no terminal event", lambda: run(session_complete=False)),
    ("run.incomplete_session", "the harness failed", lambda: run(harness_exit_code=137)),
    ("run.id_mismatch", "another id inside", lambda: run(inner_run_id="20260701_120000_codex_other_07_w4a16_gemm")),
    ("run.id_mismatch", "another model in the id", lambda: run(model="gpt-other")),
    ("run.id_mismatch", "another harness in the id", lambda: run(harness="claude")),
    ("run.conflicting_content", "a second archive", lambda: make_context(conflicts=("ab" * 32,))),
    ("run.before_deck", "a year too early", lambda: dated("20250701_120000")),
    ("gpu.unproven", "no name", lambda: on_gpu(None)),
    ("gpu.unproven", "a bare H100", lambda: on_gpu("NVIDIA H100", "H100")),
    ("gpu.mismatch", "SXM on the board of the PCIe card", lambda: on_gpu("NVIDIA H100 80GB HBM3", "H100")),
    ("gpu.mismatch", "an H100 on the board of the H200", lambda: on_gpu("NVIDIA H100 PCIe")),
    ("gpu.mismatch", "a Max-Q part", lambda: on_gpu("NVIDIA RTX PRO 6000 Blackwell Max-Q", "RTX_PRO_6000")),
    ("gpu.mismatch", "the older Ada card", lambda: on_gpu("NVIDIA RTX 6000 Ada Generation", "RTX_PRO_6000")),
    ("gpu.mismatch", "an NVL pair", lambda: on_gpu("NVIDIA H200 NVL")),
    ("gpu.ambiguous", "two devices, none named", lambda: on_gpu("NVIDIA H200, NVIDIA RTX 3090")),
    ("gpu.ambiguous", "a count without an index", lambda: environment(visible_devices=2)),
    (
        "gpu.throttled",
        "a third of the clock lost",
        lambda: environment(before={"sm_clock_mhz": 1980.0}, after={"sm_clock_mhz": 1320.0}),
    ),
    ("gpu.throttled", "ninety degrees", lambda: environment(before={}, after={"temperature_c": 90.0})),
    ("timing.contended", "a parallel regrade", lambda: regraded(mode="parallel")),
    ("timing.contended", "the grader was not alone", lambda: environment(is_benchmark_alone=False)),
    (
        "timing.contended",
        "two holders of the lock",
        lambda: lock("start pid=1 cmd=a", "start pid=2 cmd=b"),
    ),
    (
        "regrade.mixed_passes",
        "lines of the first pass",
        lambda: regraded(score="0.5123", contended_score_text=OWN),
    ),
    (
        "regrade.mixed_passes",
        "the kept log twice",
        lambda: run(
            regrade=Regrade(at="x", has_contended=True),
            files=tuple(ArchiveFile(f"benchmark{kind}.log", "1" * 64, 9, "other") for kind in ("", ".contended")),
        ),
    ),
    ("regrade.incomplete", "no host", lambda: regraded(host=None)),
    ("regrade.incomplete", "no first values", lambda: regraded(has_contended=False)),
    ("regrade.incomplete", "after the archive came", lambda: regraded(at="2026-07-02T12:06:00+00:00")),
    ("regrade.incomplete", "no time", lambda: regraded(at="yesterday")),
    ("regrade.incomplete", "a log of the day before", lambda: regraded()),
    ("timing.other_method", "a grade's own times", lambda: environment(method_version="grader-1")),
    ("run.other_problem_version", "an older one", lambda: recorded(problem_version="0" * 64)),
    ("run.other_board", "graded as SXM", lambda: environment(gpu="H100_SXM")),
    (
        "run.other_board",
        "other figures under today's version",
        lambda: make_context(
            make_record(environment=Environment(peak_version=1)),
            files={"environment.json": b'{"peak_digest": "00"}'},
        ),
    ),
    (
        "source.not_the_graded_one",
        "a tidied file",
        lambda: make_context(
            files={"environment.json": b'{"solution_digest": "00"}', "solution.py": b"import torch\n"}
        ),
    ),
    ("run.shadowing_file", "a sitecustomize", lambda: archived("sitecustomize.py")),
    ("run.shadowing_file", "a torch of its own", lambda: archived("scratch/torch.py")),
    ("run.shadowing_file", "a loose compiled file", lambda: archived("reference.pyc")),
    ("run.unknown_entrant", "a model", lambda: make_context(is_known_model=False)),
    ("run.unknown_entrant", "a harness", lambda: make_context(is_known_harness=False)),
    ("run.impossible_usage", "negative tokens", lambda: run(usage=Usage(output_tokens=-1))),
    ("run.impossible_usage", "a million tokens in ten seconds", lambda: usage(output_tokens=1_000_000)),
    ("run.impossible_usage", "a hundred dollars in ten seconds", lambda: usage(cost_usd=100.0)),
    ("verification.failed", "our grade failed", lambda: verified("failed", reason="stale answer")),
    ("verification.failed", "one lucky grade after it", lambda: graded("failed", "passed")),
    ("verification.unconfirmed", "a first grade failed", lambda: verified("failed", is_confirmed=False)),
    ("verification.needs_audit", "a suspicion", lambda: suspected("passed", "inconclusive")),
    ("verification.slower", "half as fast", lambda: verified("passed", float(OWN) / 2)),
    ("verification.stale", "another problem version", lambda: verified("passed", 0.5, problem_version="0")),
]


def usage(**fields: object) -> Context:
    return run(usage=Usage(**fields), elapsed_seconds=10)


SPEAKS += [
    ("gpu.ambiguous", "a regrade without an index", lambda: two_devices(None)),
    ("regrade.incomplete", "before the run ended", lambda: ended(13, make_benchmark(W4, with_events=False))),
    ("score.differs_from_log", "another speed-up", lambda: with_log("speedup: 2.0000\n", score_text="1.5")),
    ("verification.failed", "this very source", lambda: verified_source("failed", "1" * 64)),
    ("verification.slower", "milliseconds, where less is better", lambda: verified_ms(1000.0)),
    ("verification.stale", "another source", lambda: verified_source("passed", "2" * 64)),
]
SILENT = [
    ("regrade.incomplete", "after the run ended", lambda: ended(11, make_benchmark(W4, with_events=False))),
    ("verification.stale", "this very source", lambda: verified_source("passed", "1" * 64)),
    ("verification.failed", "two good grades after it", lambda: graded("failed", "passed", "passed")),
    ("verification.failed", "a first grade only", lambda: verified("failed", is_confirmed=False)),
    ("verification.unconfirmed", "a second grade agrees", lambda: verified("failed")),
    ("verification.needs_audit", "a clean grade after it", lambda: suspected("inconclusive", "passed")),
    ("verification.needs_audit", "a host that was too busy", lambda: graded("inconclusive")),
    ("verification.slower", "milliseconds, and fewer of them", lambda: verified_ms(0.001)),
    ("score.disagrees", "its own score", lambda: scored(OWN)),
    ("score.disagrees", "the same score without its zeros", lambda: scored(OWN.rstrip("0"))),
    ("score.disagrees", "another GPU's peaks", lambda: scored(AS_PCIE)),
    ("score.stale_peaks", "its own score", lambda: scored(OWN)),
    ("score.wrong_gpu_peaks", "its own score", lambda: scored(OWN)),
    ("score.incomplete", "every shape", lambda: scored(OWN)),
    ("score.not_recomputable", "a failed run without a log", lambda: run(log="", correct=False, score_text=None)),
    ("score.not_recomputable", "a log that is only cut", lambda: with_log(HALF_LOG)),
    ("score.above_peak", "a bandwidth just reached", lambda: with_log(make_benchmark(W4, times=make_times(W4)))),
    ("score.coarse", "six decimals", lambda: scored(OWN)),
    ("score.differs_from_log", "more digits of the same", lambda: scored(OWN)),
    ("run.template_mutated", "not recorded", lambda: run(template_mutated=None)),
    ("run.contradictory", "an honest failure", lambda: run(correct=False, score_text=None, failure_reason="incorrect")),
    ("run.contradictory", "no reason recorded", lambda: run(failure_reason=None)),
    ("run.incomplete_session", "not recorded", lambda: run(session_complete=None, harness_exit_code=None)),
    ("run.id_mismatch", "a suffix for a second attempt", lambda: dated_with("_4711_2")),
    ("run.id_mismatch", "a bracket tag in the model", lambda: bracketed()),
    ("run.conflicting_content", "one archive", lambda: make_context()),
    ("run.before_deck", "the first day", lambda: dated("20260401_000001")),
    ("gpu.unproven", "a failed run", lambda: run(correct=False, device_name=None)),
    ("gpu.unproven", "a proven part", lambda: on_gpu(H200_NAME)),
    ("gpu.mismatch", "the Workstation edition", lambda: on_gpu(RTX.replace("Server", "Workstation"), "RTX_PRO_6000")),
    ("gpu.mismatch", "the Server edition", lambda: on_gpu(RTX, "RTX_PRO_6000")),
    ("gpu.mismatch", "no name at all", lambda: on_gpu(None)),
    ("gpu.ambiguous", "one device", lambda: on_gpu(H200_NAME)),
    ("gpu.ambiguous", "two and an index", lambda: two_devices(0)),
    (
        "gpu.throttled",
        "a cool, steady device",
        lambda: environment(
            before={"sm_clock_mhz": 1980.0, "temperature_c": 38.0},
            after={"sm_clock_mhz": 1584.0, "temperature_c": 89.0},
        ),
    ),
    ("gpu.throttled", "readings of another kind", lambda: environment(before=[1], after="hot")),
    (
        "timing.contended",
        "a wait for the lock",
        lambda: lock("start pid=1 cmd=a", "wait pid=2 cmd=b args=", "end pid=1 cmd=a status=0", "start pid=2 cmd=b"),
    ),
    ("timing.contended", "an isolated regrade", lambda: regraded()),
    ("regrade.mixed_passes", "lines of the regrade", lambda: regraded(score=OWN, contended_score_text="0.0012")),
    ("regrade.mixed_passes", "both passes alike", lambda: regraded(score=OWN, contended_score_text=OWN)),
    ("regrade.incomplete", "whole, with a log without events", lambda: regraded(make_benchmark(W4, with_events=False))),
    ("regrade.incomplete", "whole, with its own log", lambda: regraded(dated_log("2026-07-02T11:59"))),
    ("timing.other_method", "the deck's method", lambda: environment(method_version="1")),
    ("timing.other_method", "an archive that names none", lambda: environment(gpu="H200")),
    ("run.other_problem_version", "today's", lambda: recorded(problem_version=W4.version)),
    ("run.other_problem_version", "an archive that names none", lambda: recorded()),
    ("run.other_board", "its own board", lambda: environment(gpu="H200")),
    ("run.other_board", "a peak table that was replaced since", lambda: environment(peak_digest="00")),
    ("source.not_the_graded_one", "no digest recorded", lambda: make_context(files={"solution.py": b"x = 1\n"})),
    ("run.shadowing_file", "caches that any session writes", lambda: archived("scratch/__pycache__/a.cpython-311.pyc")),
    ("run.shadowing_file", "a helper beside the solution", lambda: archived("helpers.py", "solution.py")),
    ("run.unknown_entrant", "both known", lambda: make_context(is_known_model=True, is_known_harness=True)),
    ("run.impossible_usage", "nothing recorded", lambda: run(usage=Usage())),
    ("run.impossible_usage", "zero is a value", lambda: usage(output_tokens=0, cost_usd=0.0)),
    ("verification.failed", "inconclusive", lambda: verified("inconclusive")),
    ("verification.failed", "a grade of another source", lambda: verified("failed", solution_digest="0" * 64)),
    ("verification.slower", "within fifteen percent", lambda: verified("passed", float(OWN) * 0.9)),
    ("verification.slower", "faster", lambda: verified("passed", float(OWN) * 2)),
    ("verification.stale", "a fresh grade", lambda: verified("passed", 0.5, problem_version=W4.version)),
    ("verification.stale", "none", lambda: make_context()),
]


def dated_with(suffix: str) -> Context:
    return run(key=RunKey("hard", "H200", f"20260701_120000_codex_gpt-test_07_w4a16_gemm{suffix}"))


def bracketed() -> Context:
    key = RunKey("hard", "H200", "20260701_120000_codex_gpt-test_1m__07_w4a16_gemm")
    return run(key=key, model="gpt-test[1m]")


def dated_log(minute: str) -> str:
    return make_benchmark(W4).replace("2026-07-01T12:00", minute)
