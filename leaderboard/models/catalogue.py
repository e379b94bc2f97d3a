"""Decks, problems, GPUs, language models and entrants: rows that mirror the catalogue files."""

from django.db import models


class Deck(models.Model):
    """A set of problems with one metric and rule set."""

    slug = models.CharField(max_length=40, primary_key=True)
    title = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.slug


class Gpu(models.Model):
    """One hardware target."""

    key = models.CharField(max_length=40, primary_key=True)
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.key


class Problem(models.Model):
    """One operation of a deck."""

    deck = models.ForeignKey(Deck, models.PROTECT, related_name="problems")
    slug = models.CharField(max_length=80)
    title = models.CharField(max_length=200)
    is_retired = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["deck", "slug"], name="problem_unique_in_deck")]
        ordering = ["deck", "slug"]

    def __str__(self) -> str:
        return f"{self.deck_id}/{self.slug}"


class LanguageModel(models.Model):
    """The language model (or named baseline) that wrote a kernel."""

    slug = models.CharField(max_length=80, unique=True)
    name = models.CharField(max_length=300)
    lab = models.CharField(max_length=100, blank=True)
    is_baseline = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Entrant(models.Model):
    """Model, harness and effort: one row of a board."""

    slug = models.CharField(max_length=240, unique=True)
    model = models.ForeignKey(LanguageModel, models.PROTECT, related_name="entrants")
    harness = models.CharField(max_length=200)
    effort = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "harness", "effort"], name="entrant_unique")]

    def __str__(self) -> str:
        return self.slug
