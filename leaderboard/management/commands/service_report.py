"""Say how busy the GPUs were, and what the grading service cost each job."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from grading.hardware import load_gpus
from grading.words import counted
from leaderboard.management.base import ProoflineCommand, parse_moment
from leaderboard.service.report import HostReport, read_report


class Command(ProoflineCommand):
    """``service_report [--key KEY] [--since MOMENT]``."""

    help = "Report each host's busy share and the service's overhead per job, from the recorded jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what is reported."""
        super().add_arguments(parser)
        parser.add_argument("--key", help="only jobs for this GPU key")
        parser.add_argument("--since", metavar="MOMENT", help="only jobs asked for at this ISO date or time, or later")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print one line a host."""
        if options["key"] not in (None, *load_gpus()):
            raise CommandError(f"--key is {options['key']!r}; accepted are {', '.join(load_gpus())}")
        since = parse_moment("--since", options["since"]) if options["since"] is not None else None
        found = read_report(options["key"], since)
        data = [{**asdict(report), "busy_share": report.busy_share} for report in found]
        self.print_result(options, "\n".join(map(_line, found)) or "no grades", data)


def _line(report: HostReport) -> str:
    share = f"{report.busy_share:.1%}" if report.busy_share is not None else "unknown"
    return (
        f"{report.host}: {counted(report.grades, 'grade')} on {counted(report.gpus, 'GPU')} "
        f"in {report.wall_seconds:.1f} s, busy {share}, "
        f"overhead {report.overhead_median_seconds:.2f} s a job (longest {report.overhead_longest_seconds:.2f}), "
        f"waited {report.waited_median_seconds:.1f} s, {report.lost} attempts lost"
    )
