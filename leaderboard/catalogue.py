"""Mirror the catalogue files into their tables, so that rows can refer to them."""

from django.db import transaction

from grading.hardware import load_gpus
from grading.names import entrant_slug, find_model, load_models, make_slug
from grading.problem import load_decks
from leaderboard.models import Deck, Entrant, Gpu, LanguageModel, Problem


@transaction.atomic
def sync() -> dict[str, int]:
    """Write decks, GPUs, problems and models of the catalogue files to the database; return how many of each."""
    decks, gpus, models = load_decks(), load_gpus(), load_models()
    Deck.objects.bulk_create(
        [Deck(slug=deck.id, title=deck.title) for deck in decks.values()],
        update_conflicts=True,
        unique_fields=["slug"],
        update_fields=["title"],
    )
    Gpu.objects.bulk_create(
        [Gpu(key=gpu.key, name=gpu.name) for gpu in gpus.values()],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["name"],
    )
    problems = [
        Problem(deck_id=deck.id, slug=problem.id, title=problem.title, is_retired=bool(problem.retired))
        for deck in decks.values()
        for problem in deck.problems.values()
    ]
    Problem.objects.bulk_create(
        problems, update_conflicts=True, unique_fields=["deck", "slug"], update_fields=["title", "is_retired"]
    )
    LanguageModel.objects.bulk_create(
        [
            LanguageModel(slug=entry.slug, name=entry.name, lab=entry.lab, is_baseline=entry.kind == "baseline")
            for entry in models.values()
        ],
        update_conflicts=True,
        unique_fields=["slug"],
        update_fields=["name", "lab", "is_baseline"],
    )
    return {"decks": len(decks), "gpus": len(gpus), "problems": len(problems), "models": len(models)}


class EntrantBook:
    """Entrants by (model string, harness, effort), made on first sight and remembered for one ingest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], int] = {}

    def entrant_id(self, model: str, harness: str, effort: str) -> int:
        """Return the primary key of the entrant of a run."""
        key = (model, harness, effort)
        if key not in self._known:
            self._known[key] = self._make(model, harness, effort)
        return self._known[key]

    def _make(self, model: str, harness: str, effort: str) -> int:
        entry = find_model(model)
        slug = entry.slug if entry else make_slug(model)
        row, _ = LanguageModel.objects.get_or_create(slug=slug, defaults={"name": model, "lab": ""})
        entrant, _ = Entrant.objects.get_or_create(
            model=row, harness=harness, effort=effort, defaults={"slug": entrant_slug(slug, harness, effort)}
        )
        return entrant.pk
