"""Hostile files: no reader of sources or transcripts raises, hangs or grows, and no rule does over what they give.

``PROOFLINE_FUZZ_EXAMPLES`` raises the number of examples for a run by hand.
"""

import os
import time
import tracemalloc

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grading.conduct import deeds_of, find_secrets
from grading.integrity import judge
from grading.problem import load_problem
from grading.source.ctokens import qualified_names, tokens_of
from grading.source.facts import read_python
from grading.source.forbidden import find_forbidden
from grading.source.shingles import sketch_source, source_digests
from grading.transcript import read_transcript
from tests.factories import make_context, make_record

MANY = settings(
    max_examples=int(os.environ.get("PROOFLINE_FUZZ_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
W4 = load_problem("hard", "07_w4a16_gemm")
PIECES = st.sampled_from(
    [
        *(
            "import torch\n",
            "from torch import topk as t\n",
            "getattr(torch, 'to' + 'pk')",
            "x",
            ".",
            "(",
            ")",
            "[",
            "]",
        ),
        *("=", "lambda: ", "if x is y:\n    return z\n", "'" * 3, '"', "\\", "\n", "    ", "#", "exec(", "٣", "\x00"),
        *("os.environ['KBH_A']", "__global__ void k() {}", "at::mm(a)", "//", "/*", "*/", 'R"a(', ')a"', "\ud800"),
        *("#if 0\n", "#endif\n"),
    ]
)
SOURCES = st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=30).map(lambda parts: encode("".join(parts))))
KEYS = (
    "type name input content message role tool command output id delta text model payload arguments call_id "
    "tool_use_id function path data exit_code is_error"
).split()
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=12,
)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@MANY
@given(SOURCES, st.sampled_from(["solution.py", "scratch/a.cu", "h.h"]))
def test_no_source_breaks_a_reader_or_a_rule(data: bytes, path: str) -> None:
    files = {path: data, "environment.json": data, "cuda_language.json": data, "gpu_lock.log": data, "check.log": data}
    list(find_forbidden(files, W4.rules))
    list(qualified_names(tokens_of(data)))
    sketch_source(files)
    source_digests(files)
    judge(make_context(make_record(), files=files))


@MANY
@given(st.lists(VALUES, max_size=6), st.binary(max_size=60))
def test_no_transcript_breaks_a_reader_or_a_rule(entries: list[object], noise: bytes) -> None:
    data = b"\n".join([*(msgspec.json.encode(entry) for entry in entries), noise])
    transcript = read_transcript(data)
    list(deeds_of(transcript.actions, "x"))
    list(find_secrets(data))
    judge(make_context(make_record(), files={"transcript.jsonl": data}))


DEEP = {
    "minus": "x = " + "-" * 200_000 + "1",
    "sum": "x = " + "+".join(["1"] * 200_000),
    "dots": "x = a" + ".a" * 200_000,
    "calls": "x = f" + "()" * 100_000,
    "brackets": "(" * 100_000,
    "elif": "if a: pass\n" + "elif a: pass\n" * 20_000,
    "quotes": "'''" * 100_001,
    "names": "import torch as a0\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(20_000)),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_a_megabyte_of_one_thing_takes_a_second_at_most(text: str) -> None:
    data = (text * (1 + 1_000_000 // len(text)))[:1_000_000].encode()
    start = time.process_time()
    list(find_forbidden({"solution.py": data}, W4.rules))
    read_python.cache_clear()
    assert time.process_time() - start < 6


def test_a_large_transcript_is_read_within_bounds() -> None:
    entry = b'{"tool": "bash", "input": {"command": "cat x | grep y"}, "output": "' + b"z" * 2000 + b'"}\n'
    data = entry * 4_000
    tracemalloc.start()
    start = time.process_time()
    transcript = read_transcript(data)
    list(deeds_of(transcript.actions, "x"))
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    read_transcript.cache_clear()
    assert len(transcript.actions) == 4_000
    assert seconds < len(data) / 1e6
    assert peak < 6 * len(data)
