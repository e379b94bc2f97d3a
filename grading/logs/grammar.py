"""The line grammar of benchmark and check logs, as one regular expression.

The pattern consumes a log line by line, from the first byte to the last, and never fails: a line is skipped (nothing in
it looks like a marker), matches one alternative as a whole, or is a fault. Every quantifier is possessive or bounded,
so the time is linear in the length of the text. A whole run of skipped lines costs one match, and lines of the common
kinds are tried first. A line of a rare kind is one group here, read again by `RARE`: few groups keep a match cheap.
A match without a group is a run of skipped lines, or the empty end of the text.

Source: docs/method.md "Logs".
"""

import re

MAX_LINE_BYTES = 64 * 1024
NUMBER = r"[0-9]{1,15}+(?:\.[0-9]{1,18}+)?+"
_WHOLE = r"[0-9]{1,15}+"
_GROUPED = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}+|[0-9]{1,15}+)"
_SHAPE = r"(?:0|[1-9][0-9]{0,7}+)(?![0-9])"
_VARIANT = r"[A-Za-z][A-Za-z0-9_]{0,31}+"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{5,8}(?:\.[0-9]{1,9})?+(?:Z|[+-][0-9]{2}:?[0-9]{2})?+"
_TEXT = r"[^\x00-\x08\n-\x1f\x7f]*+"
_WORD = r"[^\x00-\x20\x7f]{1,300}+"
_SWITCH = r"KBH_NUMERIC_STRESS[^\n\w]{1,5}(?:0|[Ff]alse|FALSE|[Nn]o|NO)(?![A-Za-z0-9_.])"
_BEFORE_SWITCH = rf"(?:[^\x00-\x08\n-\x1f\x7fK]|(?!{_SWITCH})K)*+"
_AT_END = r"(?=\r*+(?:\n|\Z))"

_TAILS = (
    f"ctx_len={_WHOLE} decode_steps={_WHOLE} tok_s={NUMBER} decode_wall_s={NUMBER}"
    f"(?: prefill_wall_s={NUMBER})?+ peak_fraction={NUMBER}",
    f"tok_s={NUMBER} decode_wall_s={NUMBER}",
    f"num_envs={_WHOLE} horizon={_WHOLE} sps={NUMBER} wall_s={NUMBER} peak_fraction={NUMBER}",
    f"sps={NUMBER} wall_s={NUMBER}",
    f"busbw={NUMBER} ms={NUMBER} peak_fraction={NUMBER}",
    f"ms={NUMBER} anchor_ms={NUMBER} speedup={NUMBER}",
    f"ms={NUMBER}",
)
_EVENT = f"shape=({_SHAPE}) variant=({_VARIANT}) ts=({_TIME})"

# The name of each kind of line with its pattern. No group is optional or nested: the last group tells the kind.
_COMMON_KINDS: tuple[tuple[str, str], ...] = (
    ("roofline", f"shape=({_SHAPE}) variant=({_VARIANT}) tflops=({NUMBER}) gbps=({NUMBER}) ms=({NUMBER})"),
    ("fraction", f"shape=({_SHAPE}) solution_peak_fraction=({NUMBER})"),
    ("headline", f"(peak_fraction|speedup|geomean_speedup_vs_eager): ({NUMBER})"),
    ("result", "(RESULT): ([A-Z_]{1,40}+)"),
    ("event_end", f"benchmark_event event=variant_end {_EVENT} elapsed_s=({NUMBER}) ms=({NUMBER})"),
    ("event_start", f"benchmark_event event=variant_start {_EVENT}"),
)
_RARE_KINDS: tuple[tuple[str, str], ...] = (
    ("versus_eager", f"shape=({_SHAPE}) speedup_vs_eager=({NUMBER})"),
    ("pairs", f"shape=({_SHAPE}) variant=({_VARIANT}) ({'|'.join(_TAILS)})"),
    ("event_error", f"benchmark_event event=variant_error {_EVENT} elapsed_s=({NUMBER}) error=({_WORD})"),
    ("verdict", "(PASS|FAIL|no_solution)"),
    ("message", f"(FAIL|WARN|benchmark error|cuda_language|device): ({_TEXT})"),
    ("rank", f"(RANK [0-9]{{1,4}}) FAIL: ({_TEXT})"),
    ("seed", "(PROPERTY_SEED): ([0-9]{1,20}+)"),
    (
        "per_token",
        f"shape ctx=({_SHAPE}): solution ({NUMBER}) ms/tok \\(({_WHOLE}) tok/s\\) \\| "
        f"baseline ({NUMBER}) ms/tok \\| speedup ({NUMBER})x",
    ),
    ("disagreement", f"shape ctx=({_SHAPE}): solution disagrees with reference ({_TEXT})"),
    (
        "trial",
        f"trial ((?:seed={_WHOLE} )?+)sps=({_GROUPED}) elapsed=({NUMBER})s((?: final_return=-?{NUMBER})?+)",
    ),
    ("steps", f"steps_per_second=({_GROUPED}) peak_sps=({_GROUPED})"),
    ("over_cap", f"steps_per_second=({_GROUPED}) exceeds credible cap ({_GROUPED}(?: {_TEXT})?+)"),
    ("below_floor", f"final_return=(-?{NUMBER}) below floor ({_TEXT})"),
    ("check", "(check): (PASS|FAIL)"),
    ("agent_exit", r"\[run_agent\] agent exit=(-?[0-9]{1,6}+)"),
    ("agent_done", rf"\[run_agent\] done ({_WORD})"),
    ("agent_start", rf"\[run_agent\] ({_WORD}) budget=([0-9]{{1,9}}+)s lock=({_TEXT})"),
    ("launcher", rf"\[launcher\] ({_TEXT})"),
    ("stress_off", rf"({_BEFORE_SWITCH}{_SWITCH}{_TEXT})"),
)

# Texts that belong to a scored or deciding line wherever they stand. The first letters are those of _SKIP.
_TRIGGERS = "|".join(
    (
        r"shape=\S{0,24}\s{1,3}variant=",
        r"shape ctx=",
        r"solution_peak_fraction",
        r"speedup_vs_eager",
        r"speedup\s{0,2}:",
        r"steps_per_second=",
        r"peak_fraction\s{0,2}:",
        r"benchmark_event\s",
        r"trial (?:seed|sps)=",
        r"RESULT\s{0,2}:",
        r"RANK [0-9]{1,4} FAIL",
        r"PROPERTY_SEED\s{0,2}:",
        r"(?<![A-Za-z0-9_])PASS(?![A-Za-z0-9_])",
        rf"(?<!BY)(?<!COM)PASS{_AT_END}",
        r"FAIL:",
        rf"FAIL{_AT_END}",
        _SWITCH,
    )
)
# Texts that mean something at the start of a line only.
_STARTS = "|".join(
    (
        "WARN: ",
        "benchmark error: ",
        "cuda_language: ",
        "device: ",
        rf"check: (?:PASS|FAIL){_AT_END}",
        rf"no_solution{_AT_END}",
        r"final_return=\S{1,40} below floor",
        r"\[run_agent\] (?:agent exit=|done \S|\S{1,300} budget=)",
        r"\[launcher\] ",
    )
)
_SKIP = rf"(?!\Z)(?!{_STARTS})(?:[^\nspbtRPFK]++|(?!{_TRIGGERS})[^\n])*+(?:\n|\Z)"
_COMMON = "|".join(pattern for _, pattern in _COMMON_KINDS)
_UNGROUPED = "|".join(re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern) for _, pattern in _RARE_KINDS)

LINES = re.compile(
    rf"(?:{_COMMON})\r?+(?:\n|\Z)|(?:{_SKIP})++|({_UNGROUPED})\r?+(?:\n|\Z)|\Z|([^\n]*+)(?:\n|\Z)", re.ASCII
)
RARE = re.compile("|".join(pattern for _, pattern in _RARE_KINDS), re.ASCII)

_VALUE = r"\S{1,60}"
SHAPED = re.compile(
    "|".join(
        (
            rf"(?:peak_fraction|speedup|geomean_speedup_vs_eager)\s*:\s*({_VALUE})?\s*",
            rf"(?:shape=\S{{0,24}}|benchmark_event|trial)(?:\s+[a-z_]+={_VALUE})*\s*",
            rf"shape ctx=\S{{1,24}} solution {_VALUE} ms/tok \({_VALUE} tok/s\) \| "
            rf"baseline {_VALUE} ms/tok \| speedup {_VALUE}",
            rf"steps_per_second={_VALUE}(?: peak_sps={_VALUE})?",
            rf"(?:PROPERTY_SEED|RESULT)\s*:\s*(?:{_VALUE})?\s*",
            r"(?:PASS|FAIL)\s*",
        )
    ),
    re.ASCII,
)


def _last_groups(kinds: tuple[tuple[str, str], ...]) -> dict[int, tuple[str, int]]:
    """Return, for the last group of each kind of line, the kind's name and the number of its first group."""
    found, first = {}, 1
    for name, pattern in kinds:
        count = re.compile(pattern).groups
        found[first + count - 1] = (name, first)
        first += count
    return found


COMMON_GROUPS = _last_groups(_COMMON_KINDS)
RARE_GROUPS = _last_groups(_RARE_KINDS)
RARE_LINE = max(COMMON_GROUPS) + 1
FAULTY_LINE = RARE_LINE + 1
