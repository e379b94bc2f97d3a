"""Coverage-guided fuzzing of every reader of hostile bytes, by hand.

``pip install atheris``, then ``python -m tests.tools.fuzz_readers [-max_total_time=600]``. A reader may refuse with its
own error; anything else stops the run and is written to a crash file.
"""

import sys

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed; pip install atheris")

with atheris.instrument_imports(include=["grading"]):
    from grading.auditfile import AuditError, read_audit
    from grading.conduct import deeds_of, find_secrets
    from grading.logs import read_benchmark, read_check
    from grading.problem import load_problem
    from grading.record import RecordError, RunKey
    from grading.resultfile import read_environment, read_result
    from grading.source.facts import read_python
    from grading.source.forbidden import find_forbidden
    from grading.source.shingles import sketch_source, source_digests
    from grading.transcript import read_transcript

W4 = load_problem("hard", "07_w4a16_gemm")
KEY = RunKey("hard", "H200", "20260701_120000_codex_gpt-test_07_w4a16_gemm")


def read_all(data: bytes) -> None:
    """Give the same bytes to every reader."""
    for refuse, read in (
        (RecordError, lambda: read_result(data, KEY)),
        (RecordError, lambda: read_environment(data)),
        (AuditError, lambda: read_audit(data, f"{KEY.run_id}.yaml", "hard")),
    ):
        try:
            read()
        except refuse:
            pass
    read_benchmark(data, "benchmark.log")
    read_check(data, "check.log")
    list(deeds_of(read_transcript(data).actions, KEY.run_id))
    list(find_secrets(data))
    for path in ("solution.py", "scratch/k.cu"):
        list(find_forbidden({path: data}, W4.rules))
        sketch_source({path: data})
        source_digests({path: data})
    read_transcript.cache_clear()
    read_python.cache_clear()


if __name__ == "__main__":
    atheris.Setup(sys.argv, read_all)
    atheris.Fuzz()
