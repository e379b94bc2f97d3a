"""Models: who has results, and the passport of one: every board, every attempt, withheld ones counted in the open."""

import datetime
from collections import Counter
from dataclasses import dataclass

from grading.hardware import load_gpus
from grading.problem import load_decks
from grading.record import Record, decode
from leaderboard.boards.cells import Cell, EntrantView, current_audits, latest_release, read_cells
from leaderboard.boards.runs import RunSummary, list_runs, summarise_all
from leaderboard.models import Audit, LanguageModel, Run

ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model in the list, over all boards of the latest release."""

    slug: str
    name: str
    lab: str
    is_baseline: bool
    entrants: int
    published: int
    withheld: int
    failed: int
    leads: int
    mean_share: float | None


@dataclass(frozen=True, slots=True)
class ModelBoard:
    """A model's cells on one board."""

    deck: str
    deck_title: str
    gpu: str
    gpu_name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What one attempt took, as far as it was recorded. `audit` is the summary of a published run's audit."""

    elapsed_seconds: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    audit: str | None


@dataclass(frozen=True, slots=True)
class ModelView:
    """Everything about one model."""

    slug: str
    name: str
    lab: str
    is_baseline: bool
    entrants: tuple[EntrantView, ...]
    counts: dict[str, int]
    leads: int
    boards: tuple[ModelBoard, ...]
    attempts: tuple[RunSummary, ...]
    attempts_total: int
    spent: tuple[Spent, ...]

    @property
    def rows(self) -> list[tuple[RunSummary, Spent]]:
        """Each attempt with what it took."""
        return list(zip(self.attempts, self.spent, strict=True))

    @property
    def recorded(self) -> dict[str, bool]:
        """Which of session, tokens and cost any attempt recorded."""
        return {
            "session": any(spent.elapsed_seconds is not None for spent in self.spent),
            "tokens": any(spent.input_tokens is not None or spent.output_tokens is not None for spent in self.spent),
            "cost": any(spent.cost_usd is not None for spent in self.spent),
        }


def list_models(at: datetime.datetime) -> list[ModelLine]:
    """Return every model with a cell in the latest release, those that lead most first; three queries."""
    by_model: dict[str, list[Cell]] = {}
    for cell in read_cells(latest_release(), at):
        by_model.setdefault(cell.entrant.model_slug, []).append(cell)
    lines = [_line(cells) for cells in by_model.values()]
    return sorted(lines, key=lambda line: (line.is_baseline, -line.leads, -(line.mean_share or 0.0), line.slug))


def read_model(slug: str, at: datetime.datetime, *, is_staff: bool = False) -> ModelView | None:
    """Return one model, or None where no run of it may be known to this reader; eight queries."""
    model = LanguageModel.objects.filter(slug=slug).first()
    if model is None:
        return None
    runs = list_runs({"model": slug}, at, is_staff=is_staff)
    total = runs.count()
    if not total:
        return None
    cells = _cells_of(slug, at)
    found = list(runs[:ATTEMPTS])
    attempts = tuple(summarise_all(found, at))
    return ModelView(
        slug=slug,
        name=model.name,
        lab=model.lab,
        is_baseline=model.is_baseline,
        entrants=tuple({cell.entrant.slug: cell.entrant for cell in cells}.values()),
        counts=dict(Counter(cell.status for cell in cells)),
        leads=_leads(cells),
        boards=_boards(cells),
        attempts=attempts,
        attempts_total=total,
        spent=_spent(found, attempts),
    )


def _cells_of(slug: str, at: datetime.datetime) -> list[Cell]:
    """Return a model's cells, ranked within the whole columns that they stand in."""
    return [cell for cell in read_cells(latest_release(), at) if cell.entrant.model_slug == slug]


def _spent(runs: list[Run], attempts: tuple[RunSummary, ...]) -> tuple[Spent, ...]:
    """Return what each attempt took; two queries."""
    records = dict(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("pk", "record"))
    audits = current_audits(run.pk for run, attempt in zip(runs, attempts, strict=True) if attempt.score is not None)
    return tuple(_taken(decode(bytes(records[run.pk])), audits.get(run.pk)) for run in runs)


def _taken(record: Record, audit: Audit | None) -> Spent:
    usage = record.usage
    summary = audit.summary if audit else None
    return Spent(record.elapsed_seconds, usage.input_tokens, usage.output_tokens, usage.cost_usd, summary)


def _line(cells: list[Cell]) -> ModelLine:
    counts = Counter(cell.status for cell in cells)
    shares = [cell.share_of_best for cell in cells if cell.share_of_best is not None]
    entrant = cells[0].entrant
    return ModelLine(
        slug=entrant.model_slug,
        name=entrant.model_name,
        lab=entrant.lab,
        is_baseline=entrant.is_baseline,
        entrants=len({cell.entrant.slug for cell in cells}),
        published=counts["published"],
        withheld=counts["withheld"],
        failed=counts["failed"],
        leads=_leads(cells),
        mean_share=sum(shares) / len(shares) if shares else None,
    )


def _leads(cells: list[Cell]) -> int:
    """Count the columns that a model leads or shares the lead of, each once."""
    return len({(c.deck, c.gpu, c.problem) for c in cells if c.rank is not None and c.rank[0] == 1})


def _boards(cells: list[Cell]) -> tuple[ModelBoard, ...]:
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.deck, cell.gpu), []).append(cell)
    return tuple(
        ModelBoard(
            deck,
            load_decks()[deck].title,
            gpu,
            load_gpus()[gpu].name,
            tuple(sorted(held, key=lambda c: (c.problem, c.id))),
        )
        for (deck, gpu), held in sorted(grouped.items())
    )
