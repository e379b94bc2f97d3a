"""Readers of benchmark and check logs, in every dialect that a deck prints."""

from grading.logs.reader import MAX_FAULTS, MAX_LINES, read_benchmark, read_check

__all__ = ["MAX_FAULTS", "MAX_LINES", "read_benchmark", "read_check"]
