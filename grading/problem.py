"""Decks and problems as data: shapes, formulas, tolerances, rules.

A problem is a folder ``decks/<deck>/<id>/`` with ``problem.toml``; a deck is ``decks/<deck>/deck.toml``. The version of
a problem is the SHA-256 digest of everything in its data that can change a score or a verdict.

Source: docs/method.md "Decks and problems".
"""

import datetime
import hashlib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from grading.formulas import FormulaError, Number, evaluate, names_in
from grading.hardware import load_gpus
from grading.neighbours import NEIGHBOURS, load_moves
from grading.tomldata import CatalogueError, load_table

DECKS = Path(__file__).parent / "decks"
ADAPTER = "adapter.py"
MetricKind = Literal["peak_fraction", "throughput", "speedup", "busbw", "ms"]
Severity = Literal["block", "warn", "note"]
Form = Literal["plain", "entry"]
_PROBLEM_FILES = {
    "problem.toml",
    "reference.py",
    ADAPTER,
    "solutions",
    "calibration.toml",
    NEIGHBOURS,
    "tolerance.json",
    "__init__.py",
    "__pycache__",
}
_FORMULA_FIELDS = ("flops", "bytes", "floor_flops", "floor_bytes", "work")
Shape = dict[str, Number]


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a problem is scored; see docs/method.md "Metrics" for each kind."""

    kind: MetricKind
    unit: str
    higher_is_better: bool
    decimals: int
    may_exceed_one: str = ""
    regime: Literal["compute", "memory"] = "compute"
    dtype: str = ""
    flops: str = ""
    bytes: str = ""
    floor_flops: str = ""
    floor_bytes: str = ""
    floor_note: str = ""
    anchor: float | None = None
    rate: str = ""
    work: str = ""
    aggregate: Literal["geomean", "best"] = "geomean"
    clamp: float = 1e-9


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deck's timing method for a problem."""

    method: Literal["deck", "wall", "ranks"]
    warmup: int
    trials: int
    statistic: Literal["median", "min", "max_over_ranks"]
    flush_bytes: int
    result_ok: float | None = None


class Stress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One numeric stress case: inputs or state entries times a constant."""

    name: str
    scale: dict[str, float]
    atol: float
    rtol: float


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deck's correctness check for a problem."""

    seeds: list[int]
    tolerance: dict[str, float]
    property_stage: bool = False
    stress: list[Stress] = []
    note: str = ""


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a submission to a problem may not use."""

    forbidden_text: list[str] = []
    forbidden_calls: list[str] = []
    forbidden_imports: list[str] = []
    language: Literal["open", "cuda"] = "open"


class EntryPoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deck's own entry points, where they are no model that is called with tensors; ``adapter.py`` calls them.

    names    functions or methods that a submission of that form defines
    untimed  why a grade through them takes no time; empty where it does
    shapes   what such a grade goes through on a GPU; empty where that is the problem's own shapes
    """

    names: list[str]
    untimed: str = ""
    shapes: list[dict[str, Number]] = []


class _ProblemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    operation: str
    retired: str
    changed: list[str]
    shape_names: list[str]
    shape_key: str
    metric: Metric
    shapes: list[dict[str, Number]]
    timing: Timing
    check: Check
    rules: Rules
    entry: EntryPoints | None = None


class SeverityOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A deck's own severity for one finding code, with its reason."""

    severity: Severity
    reason: str


class _DeckFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    summary: str
    gpus: list[str]
    first_run: datetime.date | None = None
    retired_ids: list[str] = []
    severity: dict[str, SeverityOverride] = {}
    property_since: datetime.date | None = None
    least_check_seconds: dict[str, int] = {}
    checked_sizes: dict[str, dict[str, float]] = {}


class Problem(msgspec.Struct, frozen=True):
    """One operation with its shapes, formulas, tolerances and rules."""

    deck: str
    id: str
    version: str
    title: str
    operation: str
    retired: str
    changed: list[str]
    shape_names: list[str]
    shape_key: str
    metric: Metric
    shapes: list[Shape]
    anchors_ms: list[float | None]
    timing: Timing
    check: Check
    rules: Rules
    entry: EntryPoints | None = None

    @property
    def key(self) -> str:
        """``deck/id``, as in URLs and messages."""
        return f"{self.deck}/{self.id}"

    def flops(self, shape: Shape) -> float:
        """Return the nominal floating-point operations of one call. Raises FormulaError."""
        return float(evaluate(self.metric.flops, shape))

    def bytes(self, shape: Shape) -> float:
        """Return the nominal bytes moved by one call. Raises FormulaError."""
        return float(evaluate(self.metric.bytes, shape))

    def untimed(self, form: Form) -> str:
        """Return why a grade of a form takes no time; empty where it does."""
        return self.entry.untimed if form == "entry" and self.entry is not None else ""

    def shape_label(self, index: int) -> str:
        """Return a shape as readable text, for example ``M=4096 N=4096 K=4096``."""
        return " ".join(f"{name}={self.shapes[index][name]:g}" for name in self.shape_names)

    def shape_index(self, label: str) -> int | None:
        """Return the index of the shape that a log names by ``label``, or None when the problem has no such shape.

        label  the text after ``shape=`` (an index), or the value of the shape's key name where the deck prints that
        """
        if not label.isascii() or not label.isdigit() or len(label) > 12:
            return None
        number = int(label)
        if not self.shape_key:
            return number if number < len(self.shapes) else None
        matches = [i for i, shape in enumerate(self.shapes) if shape[self.shape_key] == number]
        return matches[0] if matches else None


class Deck(msgspec.Struct, frozen=True):
    """A set of problems with one rule set, and the GPUs that it has boards for.

    property_since       first day on which the check of a problem with a property stage prints its seed
    least_check_seconds  by problem, the seconds that no whole check stays under
    checked_sizes        by problem, the largest size of each dimension that the deck's own check reaches
    """

    id: str
    title: str
    summary: str
    gpus: list[str]
    first_run: datetime.date | None
    retired_ids: list[str]
    severity: dict[str, SeverityOverride]
    problems: dict[str, Problem]
    property_since: datetime.date | None = None
    least_check_seconds: dict[str, int] = {}
    checked_sizes: dict[str, dict[str, float]] = {}

    @property
    def digest(self) -> str:
        """SHA-256 hex digest of what the deck itself decides about a run, apart from its problems."""
        judged = [self.first_run, self.severity, self.property_since, self.least_check_seconds, self.checked_sizes]
        return hashlib.sha256(msgspec.json.encode(judged, order="deterministic")).hexdigest()


@cache
def load_decks(root: Path = DECKS) -> dict[str, Deck]:
    """Return all decks by id. Raises CatalogueError naming the first fault found."""
    decks = {path.parent.name: _load_deck(path) for path in sorted(root.glob("*/deck.toml"))}
    if not decks:
        raise CatalogueError(f"{root}: holds no deck.toml")
    return decks


def load_problem(deck: str, problem: str) -> Problem:
    """Return one problem. Raises CatalogueError that lists what exists."""
    decks = load_decks()
    if deck not in decks:
        raise CatalogueError(f"deck {deck!r} is not known; accepted are {', '.join(decks)}")
    if problem not in decks[deck].problems:
        raise CatalogueError(f"problem {problem!r} is not in deck {deck}; it has {', '.join(decks[deck].problems)}")
    return decks[deck].problems[problem]


def _load_deck(path: Path) -> Deck:
    data = load_table(path, _DeckFile)
    if data.id != path.parent.name:
        raise CatalogueError(f"{path}: id is {data.id!r}; need the folder's name {path.parent.name!r}")
    unknown = [key for key in data.gpus if key not in load_gpus()]
    if unknown:
        raise CatalogueError(f"{path}: gpus holds {unknown[0]!r}; accepted are {', '.join(load_gpus())}")
    problems = {
        entry.parent.name: _load_problem(data.id, entry) for entry in sorted(path.parent.glob("*/problem.toml"))
    }
    for name in (*data.least_check_seconds, *data.checked_sizes):
        if name not in problems:
            raise CatalogueError(f"{path}: names problem {name!r}; the deck has {', '.join(problems)}")
    return Deck(
        id=data.id,
        title=data.title,
        summary=data.summary,
        gpus=data.gpus,
        first_run=data.first_run,
        retired_ids=data.retired_ids,
        severity=data.severity,
        problems=problems,
        property_since=data.property_since,
        least_check_seconds=data.least_check_seconds,
        checked_sizes=data.checked_sizes,
    )


def _load_problem(deck: str, path: Path) -> Problem:
    data = load_table(path, _ProblemFile)
    if data.id != path.parent.name:
        raise CatalogueError(f"{path}: id is {data.id!r}; need the folder's name {path.parent.name!r}")
    for entry in path.parent.iterdir():
        if entry.name not in _PROBLEM_FILES:
            raise CatalogueError(f"{entry}: unknown file; accepted are {', '.join(sorted(_PROBLEM_FILES))}")
    shapes, anchors = _split_anchors(data)
    _check_shapes(path, data, shapes)
    load_moves(path.parent, data.shape_names)
    if data.entry is not None and data.entry.shapes:
        _check_shapes(path, data, data.entry.shapes)
    _check_metric(path, data, shapes, anchors)
    return Problem(
        deck=deck,
        id=data.id,
        version=_digest(data),
        title=data.title,
        operation=data.operation,
        retired=data.retired,
        changed=data.changed,
        shape_names=data.shape_names,
        shape_key=data.shape_key,
        metric=data.metric,
        shapes=shapes,
        anchors_ms=anchors,
        timing=data.timing,
        check=data.check,
        rules=data.rules,
        entry=data.entry,
    )


def _split_anchors(data: _ProblemFile) -> tuple[list[Shape], list[float | None]]:
    anchors = [float(shape["anchor_ms"]) if "anchor_ms" in shape else None for shape in data.shapes]
    shapes = [{name: value for name, value in shape.items() if name != "anchor_ms"} for shape in data.shapes]
    return shapes, anchors


def _check_shapes(path: Path, data: _ProblemFile, shapes: list[Shape]) -> None:
    if not shapes:
        raise CatalogueError(f"{path}: shapes is empty; need at least one")
    for index, shape in enumerate(shapes):
        for name in data.shape_names:
            if name not in shape:
                raise CatalogueError(f"{path}: shapes[{index}] lacks {name!r}; it has {', '.join(shape)}")
        extra = set(shape) - set(data.shape_names)
        if extra:
            raise CatalogueError(f"{path}: shapes[{index}] has {sorted(extra)[0]!r}, which is not in shape_names")
    if data.shape_key and data.shape_key not in data.shape_names:
        raise CatalogueError(f"{path}: shape_key is {data.shape_key!r}; need one of {', '.join(data.shape_names)}")


def _check_metric(path: Path, data: _ProblemFile, shapes: list[Shape], anchors: list[float | None]) -> None:
    for field in _FORMULA_FIELDS:
        formula = getattr(data.metric, field)
        if not formula:
            continue
        try:
            missing = names_in(formula) - set(data.shape_names)
            if missing:
                raise FormulaError(f"formula {formula!r} needs {sorted(missing)[0]!r}, which is not in shape_names")
            for shape in shapes:
                evaluate(formula, shape)
        except FormulaError as error:
            raise CatalogueError(f"{path}: metric.{field}: {error}") from error
    _check_metric_fields(path, data.metric, anchors)


def _check_metric_fields(path: Path, metric: Metric, anchors: list[float | None]) -> None:
    needed = {
        "peak_fraction": ("flops", "bytes", "dtype"),
        "throughput": ("anchor", "rate"),
        "busbw": ("bytes",),
    }.get(metric.kind, ())
    for field in needed:
        if not getattr(metric, field):
            raise CatalogueError(f"{path}: metric.{field} is missing; kind {metric.kind!r} needs it")
    if metric.anchor is not None and not metric.anchor > 0:
        raise CatalogueError(f"{path}: metric.anchor is {metric.anchor}; need a number > 0")
    if any(anchor is not None and not anchor > 0 for anchor in anchors):
        raise CatalogueError(f"{path}: an anchor_ms is not > 0")


def _digest(data: _ProblemFile) -> str:
    """Return the version of a problem: what can change a score or a verdict, without titles and prose."""
    judged = {
        "metric": data.metric,
        "shapes": data.shapes,
        "timing": data.timing,
        "check": data.check,
        "rules": data.rules,
        "shape_key": data.shape_key,
    } | ({"entry": [data.entry.names, data.entry.shapes]} if data.entry is not None else {})
    return hashlib.sha256(msgspec.json.encode(judged, order="deterministic")).hexdigest()
