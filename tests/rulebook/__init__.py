"""One list of cases for the integrity rules: for every code, contexts on which it must speak and on which it must not.

A case is (code, what it shows, a function that builds the context). The two lists are data, so that a test can replace
any rule by one that never speaks and see that the list notices.
"""

from collections.abc import Callable

from grading.integrity import Context

Case = tuple[str, str, Callable[[], Context]]


def all_cases() -> tuple[list[Case], list[Case]]:
    """Return the cases on which rules must speak, and those on which they must stay silent."""
    from tests.rulebook import audits, leads, logs, records, sources, times, transcripts, twins

    modules = (records, logs, times, audits, sources, leads, transcripts, twins)
    speaks = [case for module in modules for case in module.SPEAKS]
    return speaks, [case for module in modules for case in module.SILENT]
