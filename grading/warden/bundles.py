"""Where bundles come from: a file, a folder, one of our own references, or a run's archive."""

from dataclasses import dataclass
from pathlib import Path

from grading.archive import KeyHint, read_run
from grading.hardware import load_gpus
from grading.problem import DECKS, Problem
from grading.record import RecordError
from grading.runner.demo import CONTROL, ENTRANTS, KERNELS
from grading.runner.job import may_use_forbidden
from grading.score import recompute
from grading.tomldata import CatalogueError

_SOURCES = (".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx")

HARNESS = "proofline-grade"
_VARIANTS = {"eager": "eager", "compiled": "compiled", "sota": "vendor"}


@dataclass(frozen=True)
class Bundle:
    """A candidate: its files by path, who it is, and the times it claims per shape."""

    files: dict[str, bytes]
    model: str
    harness: str = HARNESS
    is_exempt: bool = False
    published_ms: tuple[float | None, ...] = ()


def bundle_of_file(path: Path, model: str) -> Bundle:
    """Return the bundle of a solution's file, or of a folder that holds ``solution.py``. Raises OSError."""
    if not path.is_dir():
        return Bundle({"solution.py": path.read_bytes()}, model)
    files = sorted(entry for entry in path.rglob("*") if entry.is_file() or entry.is_symlink())
    links = [entry for entry in files if entry.is_symlink()]
    if links:
        raise CatalogueError(f"{links[0]} is a link; a bundle holds plain files only")
    return Bundle({str(entry.relative_to(path)): entry.read_bytes() for entry in files}, model)


def bundle_of_reference(problem: Problem, name: str, decks: Path = DECKS) -> Bundle:
    """Return the bundle of one of our own solutions, by its file's name. Raises CatalogueError that lists them."""
    folder = decks / problem.deck / problem.id / "solutions"
    known = {path.stem: path for path in sorted(folder.glob("*/*.py"))}
    if decks == DECKS and problem.id in KERNELS:
        known["kernel"] = Path(__file__).parents[1] / "kernels" / f"{KERNELS[problem.id]}.py"
    if name not in known:
        raise CatalogueError(f"{problem.key} has no reference solution {name!r}; it has {', '.join(known)}")
    text = known[name].read_bytes()
    is_exempt = may_use_forbidden("baseline", text.decode())
    return Bundle({"solution.py": text}, ENTRANTS.get(name, CONTROL), "baseline", is_exempt)


def baselines_of(problem: Problem, decks: Path = DECKS) -> dict[str, dict[str, bytes]]:
    """Return the problem's eager, compiled and vendor solutions by their variant in logs, as far as it has them."""
    folder = decks / problem.deck / problem.id / "solutions" / "right"
    known = {variant: folder / f"{name}.py" for variant, name in _VARIANTS.items()}
    return {variant: {"solution.py": path.read_bytes()} for variant, path in known.items() if path.exists()}


def bundle_of_archive(problem: Problem, root: Path) -> Bundle:
    """Return a run's sources, and its published time per shape. Raises CatalogueError for what is no such run."""
    try:
        record, blobs = read_run(root, KeyHint(deck=problem.deck))
    except RecordError as error:
        raise CatalogueError(str(error)) from error
    if record.problem != problem.id:
        raise CatalogueError(f"{root} is a run of {record.problem}; need one of {problem.id}")
    files = {entry.path: blobs[entry.digest] for entry in record.files if entry.role in ("solution", "sidecar")}
    files = {path: data for path, data in files.items() if path.endswith(_SOURCES) and "/" not in path}
    gpu = load_gpus()[record.key.gpu]
    shapes = recompute(record, problem, gpu.key, gpu.current).shapes
    published = tuple((shape.ms.low + shape.ms.high) / 2 if shape.ms is not None else None for shape in shapes)
    is_exempt = may_use_forbidden(record.harness, files.get("solution.py", b"").decode(errors="replace"))
    return Bundle(files, record.model, is_exempt=is_exempt, published_ms=published)
