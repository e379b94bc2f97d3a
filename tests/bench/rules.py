"""Runs per second of the rules over generated runs, and the share of the time of each rule; nothing is stored.

``PROOFLINE_BENCH_RUNS`` sets how many runs; 100,000 unless given.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from grading.integrity import RULES, Context
from grading.integrity.crossrun import Index, Signature, sign
from grading.integrity.twins import typical_ms
from grading.problem import load_decks, load_problem
from grading.record import RunKey
from tests.factories import make_benchmark, make_context, make_record, make_times
from tests.rulebook.twins import kernel

COUNT = int(os.environ.get("PROOFLINE_BENCH_RUNS", "100000"))
DISTINCT_SOURCES = 2_000
ROUND = 5_000


def generate(count: int) -> Iterator[tuple[Context, Signature]]:
    """Yield runs with logs of their own and one of a few thousand sources, in order of receipt."""
    chance = random.Random(5)
    problems = [load_problem("hard", name) for name in load_decks()["hard"].problems]
    for order in range(count):
        problem = problems[order % len(problems)]
        log = make_benchmark(problem, "H200", make_times(problem, 0.1 + chance.random()))
        key = RunKey("hard", "H200", f"20260701_120000_codex_gpt-test_{problem.id}_{order}_1")
        record = make_record(problem, log=log, key=key)
        context = make_context(record, files={"solution.py": kernel(chance.randrange(DISTINCT_SOURCES), 60).encode()})
        author = f"m{order % 40}"
        times = typical_ms(context.score.shapes)
        yield context, sign(record, context.files, times, key=str(order), order=order, model=author, author=author)


def run() -> None:
    """Print runs/s by round, so that a cost that grows with the number of runs shows, and each rule's share."""
    index, spent, found = Index(), Counter[str](), Counter[str]()
    signed = looked_up = 0.0
    rounds: list[float] = []
    made = generate(COUNT)
    for _ in range(0, COUNT, ROUND):
        batch = []
        start = time.perf_counter()
        batch.extend(pair for _, pair in zip(range(min(ROUND, COUNT)), made, strict=False))
        signed += time.perf_counter() - start
        start = time.perf_counter()
        contexts = []
        for context, signature in batch:
            index.add(signature)
            contexts.append(replace(context, neighbours=index.neighbours(signature)))
        looked_up += time.perf_counter() - start
        judge_all(contexts, spent, found)
        rounds.append(time.perf_counter() - start)
    total = sum(spent.values())
    say(f"rules: {COUNT} runs, {COUNT / total:,.0f} runs/s in the rules, {COUNT / looked_up:,.0f} runs/s in the index")
    say(f"       first {ROUND} runs {rounds[0]:.1f} s, last {rounds[-1]:.1f} s; making and signing took {signed:.0f} s")
    for code, seconds in spent.most_common(12):
        say(f"       {seconds / total:6.1%}  {code}  ({found[code]} findings)")
    rest = spent.most_common()[12:]
    say(f"       {sum(seconds for _, seconds in rest) / total:6.1%}  the other {len(rest)} rules")


def judge_all(contexts: list[Context], spent: Counter[str], found: Counter[str]) -> None:
    """Judge runs rule by rule, adding up seconds and findings."""
    clock = time.perf_counter
    for context in contexts:
        for code, rule in RULES.items():
            start = clock()
            found[code] += sum(1 for _ in rule.check(context))
            spent[code] += clock() - start


def say(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")
