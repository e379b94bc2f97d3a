"""Survey ``tolerances``: how far honest solutions and cheap cheats stand from the reference, and the gate between them.

Honest are all right solutions of a problem; cheats are its wrong ones that must be found incorrect, and the generic
ones that show in a single call. Cases of whole numbers are left out: there bits must agree, whatever the gate.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from grading.evidence import GRADER_VERSION
from grading.oracle.contents import Content
from grading.oracle.gates import TOLERANCE_FILE, Gate, bound_of, compare, gate_key
from grading.problem import Problem, load_problem
from grading.survey.bench import Bench, Pair, Versions, read_versions
from grading.survey.book import Entry, write_json
from grading.survey.gatefit import Fit, Spread, fit_gates, lacks
from grading.survey.items import reference_of
from grading.survey.work import Work

TOLERANCE_SCHEMA = 1
_QUANTILES = (0.5, 0.99, 0.999)
_SAMPLED = 1 << 20
PLAIN = "eager"


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of one problem's solutions, and the gates in whose tolerances they are.

    failed  by solution, why it is not among them
    """

    versions: Versions
    shapes: list[dict[str, float]]
    contents: int
    gates: dict[str, Gate]
    spreads: list[Spread]
    failed: dict[str, str] = {}


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """``tolerance.json``: the gates, and how they came about; `grading.oracle.gates` reads ``gates`` alone."""

    schema: int
    problem: str
    problem_version: str
    grader_version: str
    reference_digest: str
    measured_at: str
    gpu: str
    gates: dict[str, Gate]
    fits: list[Fit]
    errors: Errors


def measure_errors(work: Work) -> Iterator[Errors]:
    """Child: compare every solution on all contents of all shapes; yield what there is after each content."""
    problem, tally = load_problem(*work.problem.split("/", 1)), Tally(work)
    for index, shape in work.chosen_shapes():
        bench = Bench(problem, shape, work.device)
        models = _make_models(bench, work, tally)
        for name, content in bench.contents(work.draws):
            if not content.is_exact:
                _compare_all(bench, models, (f"{name}, shape {index}", content), tally)
                yield tally.result()
        tally.shapes.append(shape)
        models.clear()
        bench.close()
        yield tally.result()


class Tally:
    """What was found so far, by solution and gate."""

    def __init__(self, work: Work) -> None:
        self.versions = read_versions(work.device)
        self.named = {named.name: named for named in work.solutions}
        self.shapes: list[dict[str, float]] = []
        self.contents = 0
        self.gates: dict[str, Gate] = {}
        self.spreads: dict[tuple[str, str], Spread] = {}
        self.failed: dict[str, str] = {}

    def add(self, name: str, gate: str, ratio: float | None, at: str) -> None:
        """Keep a content's error where it is the solution's largest under this gate."""
        before = self.spreads.get((name, gate))
        if before is None:
            named = self.named[name]
            made = Spread(
                solution=name,
                digest=named.digest,
                is_honest=named.kind == "right",
                gate=gate,
                largest=ratio,
                at=at,
                is_plain=named.kind != "right",
            )
            self.spreads[name, gate] = made
        elif before.largest is not None and (ratio is None or ratio > before.largest):
            self.spreads[name, gate] = msgspec.structs.replace(before, largest=ratio, at=at)

    def add_nominal(self, name: str, gate: str, quantiles: tuple[float, float, float]) -> None:
        """Keep the percentiles of a nominal answer's elements, each where it is the largest."""
        before = self.spreads[name, gate]
        old = before.nominal or quantiles
        most = (max(old[0], quantiles[0]), max(old[1], quantiles[1]), max(old[2], quantiles[2]))
        self.spreads[name, gate] = msgspec.structs.replace(before, nominal=most)

    def differs(self, name: str) -> None:
        """Keep that a cheat's bits differed from the honest ones."""
        for key, spread in self.spreads.items():
            if key[0] == name:
                self.spreads[key] = msgspec.structs.replace(spread, is_plain=False)

    def result(self) -> Errors:
        """Return what there is."""
        spreads = [spread for (name, _), spread in self.spreads.items() if name not in self.failed]
        return Errors(
            versions=self.versions,
            shapes=self.shapes,
            contents=self.contents,
            gates=self.gates,
            spreads=spreads,
            failed=self.failed,
        )


def _make_models(bench: Bench, work: Work, tally: Tally) -> dict[str, Any]:
    models = {}
    for named in work.solutions:
        try:
            models[named.name] = bench.add(Path(named.path), is_sharing=named.kind != "right")
        except Exception as error:  # noqa: BLE001 (a solution that cannot be built here is left out and named)
            tally.failed[named.name] = f"{type(error).__name__}: {error}"[:300]
    return models


def _compare_all(bench: Bench, models: dict[str, Any], what: tuple[str, Content], tally: Tally) -> None:
    """Compare all models on one content; the eager solution's bits tell which cheats do nothing here."""
    at, content = what
    wanted = bench.wanted(content)
    plain = bench.call(models[PLAIN], content) if PLAIN in models else wanted
    tally.contents += 1
    for name in [name for name in models if name not in tally.failed]:
        try:
            found = plain if name == PLAIN else bench.call(models[name], content)
            pairs = bench.pairs(content, wanted, found)
        except ValueError:
            _note_form(bench, content, wanted, (name, at), tally)
            continue
        except Exception as error:  # noqa: BLE001 (as above)
            tally.failed[name] = f"{at}: {type(error).__name__}: {error}"[:300]
            continue
        for pair in pairs:
            _note(bench, pair, content, (name, at), tally)
        if not all(compare(one, other, Gate(0.0, 0.0)).is_equal for one, other in zip(plain, found, strict=True)):
            tally.differs(name)


def _note(bench: Bench, pair: Pair, content: Content, who: tuple[str, str], tally: Tally) -> None:
    ratio = compare(pair.wanted, pair.found, pair.gate).ratio
    if not pair.wanted.dtype.is_floating_point:
        tally.add(who[0], pair.dtype, ratio, who[1])
        return
    key = gate_key(bench.problem.key, pair.dtype, content.kind)
    tally.gates.setdefault(key, pair.gate)
    tally.add(who[0], key, ratio, who[1])
    if ratio is not None and who[1].startswith("nominal"):
        tally.add_nominal(who[0], key, _quantiles(pair))


def _note_form(bench: Bench, content: Content, wanted: Any, who: tuple[str, str], tally: Tally) -> None:
    """Keep an answer of another form as not finite, under the gate of the answer's first part."""
    key = gate_key(bench.problem.key, str(wanted[0].dtype)[6:], content.kind)
    tally.add(who[0], key, None, who[1])
    tally.differs(who[0])


def _quantiles(pair: Pair) -> tuple[float, float, float]:
    """Return percentiles of the elements' errors in tolerances, of a million elements at even distances."""
    import torch

    bound = bound_of(pair.wanted.float(), pair.gate).clamp_min(torch.finfo(torch.float32).tiny)
    errors = ((pair.wanted.float() - pair.found.float()).abs() / bound).flatten()
    step = -(-errors.numel() // _SAMPLED)
    found = errors[::step].quantile(torch.tensor(_QUANTILES, device=errors.device)).tolist()
    return found[0], found[1], found[2]


def fits_of(errors: Errors) -> list[Fit]:
    """Return the proposed gates of a problem's errors."""
    return fit_gates(errors.spreads, errors.gates)


def why_not_stored(problem: Problem, entry: Entry, device: str) -> str:
    """Return why a calibration may not become the grader's, or an empty text."""
    if device == "cpu":
        return "a processor's shapes are not the deck's"
    if entry.state != "done":
        return f"the measurement {entry.state}"
    errors = msgspec.convert(entry.result, Errors)
    blurred = [fit.gate for fit in fits_of(errors) if fit.proposed is None]
    if errors.shapes != problem.shapes:
        return "not all of the deck's shapes were measured"
    return (
        f"no gate separates honest solutions and cheats in {', '.join(blurred)}" if blurred else lacks(errors.spreads)
    )


def store(problem: Problem, entry: Entry, gpu: str) -> Path:
    """Write ``tolerance.json`` beside the problem's data and return its path; ask `why_not_stored` first."""
    errors = msgspec.convert(entry.result, Errors)
    fits, reference = fits_of(errors), reference_of(problem)
    path = reference.with_name(TOLERANCE_FILE)
    content = Tolerance(
        schema=TOLERANCE_SCHEMA,
        problem=problem.key,
        problem_version=problem.version,
        grader_version=GRADER_VERSION,
        reference_digest=hashlib.sha256(reference.read_bytes()).hexdigest(),
        measured_at=entry.at,
        gpu=gpu,
        gates={fit.gate: fit.proposed for fit in fits if fit.proposed is not None},
        fits=fits,
        errors=errors,
    )
    write_json(path, content)
    return path


def table(entry: Entry) -> str:
    """Return a problem's errors, a line a solution and gate, and the proposed gates."""
    if entry.result is None:
        return f"{entry.problem}: {entry.state} {entry.detail}"
    errors = msgspec.convert(entry.result, Errors)
    lines = [f"{entry.problem}, {entry.state}, {errors.contents} contents at {len(errors.shapes)} shapes"]
    lines += [f"  {name}: left out, {reason}" for name, reason in errors.failed.items()]
    lines += [f"  {_row(spread)}" for spread in errors.spreads]
    return "\n".join(lines + [f"  {_proposal(fit)}" for fit in fits_of(errors)])


def _row(spread: Spread) -> str:
    word = "honest" if spread.is_honest else "no cheat here" if spread.is_plain else "cheat"
    largest = "not finite" if spread.largest is None else f"{spread.largest:.3g}"
    spans = "" if spread.nominal is None else " p50 {:.2g} p99 {:.2g} p99.9 {:.2g}".format(*spread.nominal)
    return f"{spread.gate:<20} {word:<13} {spread.solution:<22} largest {largest} ({spread.at}){spans}"


def _proposal(fit: Fit) -> str:
    if fit.proposed is None:
        return f"{fit.gate}: no gate separates {fit.honest} ({fit.largest_honest}) and {fit.cheat} ({fit.least_cheat})"
    gate, word = fit.proposed, "stands" if fit.proposed == fit.present else "proposed"
    numbers = f"share {gate.share:g}, rtol {gate.rtol:g}, atol {gate.atol:g}"
    below = f"{_room(fit.room_below)} below {fit.cheat}" if fit.cheat else "no cheat shows here"
    return f"{fit.gate}: {word} {numbers}; {_room(fit.room_above)} above {fit.honest}, {below}"


def _room(factor: float | None) -> str:
    return "any factor" if factor is None else f"{factor:.2g} times"
