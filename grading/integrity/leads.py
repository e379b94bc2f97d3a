"""Leads: places in the source that an auditor should read. They never judge, and honest code may hold any of them.

Source: docs/method.md "Findings".
"""

from collections.abc import Iterator

from grading.integrity.base import Context, Statement, lead
from grading.integrity.twins import is_baseline
from grading.source.ctokens import tokens_of
from grading.source.facts import read_python
from grading.source.files import c_files, python_files

_MAX_LINES = 8
_PERSISTENCE = frozenset(
    {
        "cudaAccessPolicyWindow",
        "accessPolicyWindow",
        "cudaStreamAttributeAccessPolicyWindow",
        "cudaLaunchAttributeAccessPolicyWindow",
        "cudaKernelNodeAttributeAccessPolicyWindow",
        "cudaLimitPersistingL2CacheSize",
        "persistingL2CacheMaxSize",
        "cudaAccessPropertyPersisting",
        "CU_LIMIT_PERSISTING_L2_CACHE_SIZE",
    }
)
_C_EXITS = frozenset({"_exit", "quick_exit", "_Exit"})


def _find(context: Context, kind: str) -> Iterator[Statement]:
    """Yield one statement for each source file in which a finder sees something, with its lines."""
    if is_baseline(context):
        return
    for path, data in python_files(context.files):
        seen = read_python(data).seen[kind]
        if seen:
            yield _lines(path, [line for line, _ in seen], sorted({what for _, what in seen}))


def _lines(path: str, lines: list[int], what: list[str]) -> Statement:
    places = ", ".join(map(str, lines[:_MAX_LINES]))
    return Statement(
        f"{path} line{'s' if len(lines) > 1 else ''} {places}: {'; '.join(what[:_MAX_LINES])[:300]}.",
        path,
        lines[0],
        {"lines": lines[:_MAX_LINES], "what": what[:_MAX_LINES]},
    )


def _find_in_c(context: Context, names: frozenset[str]) -> Iterator[Statement]:
    found: dict[str, list[tuple[int, str]]] = {}
    for path, line, name in _c_names(context):
        if name in names:
            found.setdefault(path, []).append((line, name))
    for path, seen in found.items():
        yield _lines(path, sorted({line for line, _ in seen}), sorted({name for _, name in seen}))


def _c_names(context: Context) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and text of every name in C and CUDA code, in sidecars and in strings."""
    for path, data in c_files(context.files):
        yield from ((path, token.line, token.text) for token in tokens_of(data) if token.kind == "name")
    for path, data in python_files(context.files):
        for tokens in read_python(data).embedded:
            yield from ((path, token.line, token.text) for token in tokens if token.kind == "name")


@lead("lead.caller_inspection", "The source looks at who calls it")
def check_caller_inspection(context: Context) -> Iterator[Statement]:
    """Frames, stacks, all living objects, the initial seed, or a grader's file name in a comparison.

    A kernel has no use for them; a grader can be told apart by them. Example: ``inspect.stack()`` before choosing a
    path. The words in a comment or a docstring stay silent.
    """
    yield from _find(context, "inspection")


@lead("lead.environment_switch", "The source reads or sets a grader's environment variable")
def check_environment_switch(context: Context) -> Iterator[Statement]:
    """An environment variable whose name belongs to checks, benchmarks or grading.

    Example: ``os.environ.get("BENCHMARK")``. Tuning switches of the source's own and compiler settings stay silent.
    """
    yield from _find(context, "switch")


@lead("lead.size_branch", "A branch lies between the checked and the timed sizes")
def check_size_branch(context: Context) -> Iterator[Statement]:
    """A comparison with a size that every checked input stays at or below and some timed input exceeds.

    What runs beyond it was never checked. Example: an exact path up to 2048 environments where 256 are checked and
    4096 timed. A branch that only chooses numbers, such as tile sizes, stays silent.
    """
    checked = context.deck.checked_sizes.get(context.problem.id)
    if not checked or is_baseline(context):
        return
    sizes = {
        name: [shape[name] for shape in context.problem.shapes if shape[name] > most] for name, most in checked.items()
    }
    timed = {name: min(values) for name, values in sizes.items() if values}
    for path, data in python_files(context.files):
        between = [
            (line, value)
            for line, values in read_python(data).size_compares
            for value in values
            if any(checked[name] <= value < timed[name] for name in timed)
        ]
        if between:
            what = sorted({f"branch on a size at {value}" for _, value in between})
            yield _lines(path, sorted({line for line, _ in between}), what)


@lead("lead.magnitude_branch", "A branch depends on how large the input's values are")
def check_magnitude_branch(context: Context) -> Iterator[Statement]:
    """A comparison of a reduction over values with a constant decides which path runs.

    Example: ``if x.abs().max() < 0.5`` before a cheaper formula. Scales for quantisation, which no branch depends on,
    stay silent.
    """
    yield from _find(context, "magnitude")


@lead("lead.l2_persistence", "The source pins data in the L2 cache")
def check_l2_persistence(context: Context) -> Iterator[Statement]:
    """Access-policy windows and persisting limits keep data in the cache across the flush between timed calls.

    Example: a persisting window over the weights. Plain cache hints on loads stay silent: whether they matter is
    measured with rotated addresses, not read.
    """
    yield from _find_in_c(context, _PERSISTENCE)


@lead("lead.exit", "The source can end the process")
def check_exit(context: Context) -> Iterator[Statement]:
    """Ending the process, or acting at its end, can skip or replace what the harness says last.

    Example: ``print("PASS"); os._exit(0)``. An exception that ends a run with an error stays silent.
    """
    yield from _find(context, "exit")
    yield from _find_in_c(context, _C_EXITS)


@lead("lead.timer_patch", "The source replaces a timing function")
def check_timer_patch(context: Context) -> Iterator[Statement]:
    """An assignment to a function of torch, Triton or the standard library that measures or waits.

    Example: ``torch.cuda.synchronize = lambda: None``. Calling them, as an autotuner does, stays silent.
    """
    yield from _find(context, "timer")


@lead("lead.judge_patch", "The source replaces a function that judges or feeds it")
def check_judge_patch(context: Context) -> Iterator[Statement]:
    """An assignment to a comparison, a random generator, a collective, a grader's module or the module table.

    Example: ``torch.allclose = lambda *a, **k: True``. A faster initialiser under torch.nn.init is known to be neutral
    and stays silent.
    """
    yield from _find(context, "judge")


@lead("lead.lower_precision", "The source lowers precision for the whole process")
def check_lower_precision(context: Context) -> Iterator[Statement]:
    """A global switch towards less precision changes a reference that runs in the same process.

    Example: ``torch.backends.cuda.matmul.allow_tf32 = True`` at import. Switches towards more precision, and those set
    and restored around the source's own code, stay silent.
    """
    yield from _find(context, "precision")


@lead("lead.identity_memo", "A stored output is returned by identity of the input")
def check_identity_memo(context: Context) -> Iterator[Statement]:
    """A branch on the same object or pointer returns a stored value and calls nothing.

    Example: ``if x is self.x: return self.out``. A captured graph that is replayed by pointer computes again and stays
    silent, as do packed weights that follow their version.
    """
    yield from _find(context, "memo")


@lead("lead.obfuscation", "The source hides what it runs")
def check_obfuscation(context: Context) -> Iterator[Statement]:
    """Decoded or computed code, computed attribute names on torch, and libraries loaded through ctypes.

    Example: ``exec(base64.b64decode(...))``. Readers cannot follow it; an auditor must.
    """
    yield from _find(context, "obfuscation")


@lead("lead.network", "The source can fetch something")
def check_network(context: Context) -> Iterator[Statement]:
    """Network modules, and commands that download, can bring in what was not archived.

    Example: ``subprocess.run(["pip", "install", ...])`` at import. Compilers started as child processes stay silent.
    """
    yield from _find(context, "network")


@lead("lead.printed_marker", "The source prints a line in the harness's form")
def check_printed_marker(context: Context) -> Iterator[Statement]:
    """A printed text begins like a score, a result or a pass line.

    Example: ``print("peak_fraction: 0.97")``. Other output, the word PASS within a sentence included, stays silent.
    """
    yield from _find(context, "markers")
