"""Django application of the grading app; it owns no table and brings commands only."""

from django.apps import AppConfig


class GradingConfig(AppConfig):
    """The grader's commands."""

    name = "grading"
