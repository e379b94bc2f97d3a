"""Cases of rules across runs, through the index that finds neighbours."""

import msgspec

from grading.hardware import load_gpus
from grading.integrity import Context
from grading.integrity.crossrun import Index, Signature, sign
from grading.integrity.twins import typical_ms
from grading.logs import read_check
from grading.problem import load_problem
from grading.record import ArchiveFile, Environment, Record
from grading.score import recompute
from tests.factories import make_benchmark, make_context, make_record, make_times

W4 = load_problem("hard", "07_w4a16_gemm")


def kernel(seed: int, rows: int = 30) -> str:
    """A source of its own: no two seeds share three lines."""
    body = "".join(f"    acc_{seed}_{row} = load(p + {seed * 1000 + row}) * {row}\n" for row in range(rows))
    return f"import torch\ndef forward_{seed}(p):\n{body}    return acc_{seed}_0\n"


def run(
    source: str | None = None, times: float = 0.05, gpu: str = "H200", **fields: object
) -> tuple[Record, dict[str, bytes]]:
    log = fields.pop("log", None) or make_benchmark(W4, gpu, make_times(W4, times))
    files = {} if source is None else {"solution.py": source.encode()}
    held = tuple(ArchiveFile(name, "0" * 64, len(data), "solution") for name, data in files.items())
    return make_record(W4, gpu, log, files=held, **fields), files


def signature(record: Record, files: dict[str, bytes], order: int, author: str) -> Signature:
    gpu = load_gpus()[record.key.gpu]
    shapes = recompute(record, W4, gpu.key, gpu.current).shapes
    return sign(record, files, typical_ms(shapes), key=str(order), order=order, model=author, author=author)


def after(*runs: tuple[tuple[Record, dict[str, bytes]], str]) -> Context:
    """The last of some runs, judged with an index of all of them in order of receipt."""
    signatures = [signature(*item, order, author) for order, (item, author) in enumerate(runs)]
    record, files = runs[-1][0]
    return make_context(record, files=files, neighbours=Index(signatures).neighbours(signatures[-1]))


def before(*runs: tuple[tuple[Record, dict[str, bytes]], str]) -> Context:
    """The first of some runs, judged with an index of all of them."""
    signatures = [signature(*item, order, author) for order, (item, author) in enumerate(runs)]
    record, files = runs[0][0]
    return make_context(record, files=files, neighbours=Index(signatures).neighbours(signatures[0]))


def renamed(source: str) -> str:
    return (
        source.replace("acc_", "sum_")
        .replace("forward_1", "run_it")
        .replace("import torch\n", "import torch\n\n# mine\n")
    )


def busy(uuid: str, minute: int) -> tuple[Record, dict[str, bytes]]:
    log = make_benchmark(W4, times=make_times(W4, 0.05 + minute / 1e4)).replace("T12:00", f"T12:{minute:02d}")
    return run(kernel(minute), log=log, environment=Environment(device_uuid=uuid))


def mixed(shared: int, own: int) -> str:
    """A source of which a part is kernel 1's."""
    first = kernel(1, 100).splitlines(True)[:shared]
    return "".join(first) + kernel(2, own)


def seeded(times: float, seed: str) -> tuple[Record, dict[str, bytes]]:
    return run(
        kernel(int(times * 1e4)), times, check=read_check(f"PROPERTY_SEED: {seed}\nPASS\n".encode(), "check.log")
    )


def board(gpu: str) -> tuple[Record, dict[str, bytes]]:
    """A log that holds times and no rates, as another board's lines would be typed in again."""
    text = make_benchmark(W4, "H200", make_times(W4, 0.0512345), with_events=True)
    return run(kernel(5), log=text + f"WARN: {gpu}\n", gpu=gpu)


A, B = "model-a high", "model-b high"
SPEAKS = [
    ("source.duplicate", "the same file", lambda: after((run(kernel(1)), A), (run(kernel(1), 0.06), B))),
    ("source.duplicate", "with other names", lambda: after((run(kernel(1)), A), (run(renamed(kernel(1)), 0.06), B))),
    ("source.near_duplicate", "half of it", lambda: after((run(kernel(1, 100)), A), (run(mixed(60, 50), 0.06), B))),
    ("run.repeated_log", "under another name", lambda: after((run(kernel(1)), A), (run(kernel(2)), B))),
    ("run.repeated_log", "with another source", lambda: after((run(kernel(1)), A), (run(kernel(2)), A))),
    ("run.resubmitted", "under another id", lambda: after((run(kernel(1)), A), (run(kernel(1)), A))),
    ("run.repeated_times", "on another board", lambda: after((board("H200"), A), (board("B200"), A))),
    ("check.repeated_seed", "of another check", lambda: after((seeded(0.05, "7"), A), (seeded(0.06, "7"), B))),
    ("score.spread", "a fifth apart", lambda: after((run(kernel(1), 0.05), A), (run(kernel(1), 0.06), A))),
    ("timing.contended", "at the same time", lambda: after((busy("G", 1), A), (busy("G", 1), B))),
    ("timing.contended", "also for the earlier one", lambda: before((busy("G", 1), A), (busy("G", 1), B))),
]


def baseline() -> Context:
    context = after((run(kernel(1)), A), (run(kernel(1), 0.06), B))
    record = msgspec.structs.replace(context.record, model="pytorch-eager")
    return make_context(record, files=context.files, neighbours=context.neighbours)


SILENT = [
    ("source.duplicate", "one of our own baselines", baseline),
    ("source.duplicate", "two sources", lambda: after((run(kernel(1)), A), (run(kernel(2), 0.06), B))),
    ("source.duplicate", "the original of a copy", lambda: before((run(kernel(1)), A), (run(kernel(1), 0.06), B))),
    (
        "source.duplicate",
        "two lines that anyone writes",
        lambda: after((run("import torch\n"), A), (run("import torch\n", 0.06), B)),
    ),
    (
        "source.near_duplicate",
        "a common skeleton",
        lambda: after((run(kernel(1, 100)), A), (run(mixed(12, 90), 0.06), B)),
    ),
    (
        "source.near_duplicate",
        "a copy, which has a rule of its own",
        lambda: after((run(kernel(1)), A), (run(kernel(1), 0.06), B)),
    ),
    ("run.repeated_log", "the original", lambda: before((run(kernel(1)), A), (run(kernel(2)), B))),
    (
        "run.repeated_log",
        "logs with too few digits",
        lambda: after(
            (run(log="shape=0 variant=solution ms=0.012\n"), A), (run(log="shape=0 variant=solution ms=0.012\n"), B)
        ),
    ),
    ("run.resubmitted", "measured again", lambda: after((run(kernel(1)), A), (run(kernel(1), 0.0500001), A))),
    ("run.repeated_times", "another last digit", lambda: after((run(kernel(1)), A), (run(kernel(1), 0.050001), B))),
    ("check.repeated_seed", "two seeds", lambda: after((seeded(0.05, "7"), A), (seeded(0.06, "8"), B))),
    ("score.spread", "a tenth apart", lambda: after((run(kernel(1), 0.05), A), (run(kernel(1), 0.055), A))),
    ("score.spread", "two entrants", lambda: after((run(kernel(1), 0.05), A), (run(kernel(1), 0.1), B))),
    ("timing.contended", "one after the other", lambda: after((busy("G", 1), A), (busy("G", 2), B))),
    ("timing.contended", "on two devices", lambda: after((busy("G", 1), A), (busy("H", 1), B))),
]
