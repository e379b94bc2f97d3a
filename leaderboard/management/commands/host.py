"""Add, list, accept, release and revoke the hosts that grade."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.utils import timezone

from leaderboard.boards.verifications import HostHealth
from leaderboard.boards.verifications import hosts as list_hosts
from leaderboard.management.base import ProoflineCommand
from leaderboard.models import Host, HostGpu
from leaderboard.representation import rfc3339
from leaderboard.service import hosts


class Command(ProoflineCommand):
    """``host add NAME``, ``host list``, ``host accept|release NAME [--uuid U] --as USERNAME``, ``host revoke NAME``."""

    help = "Register GPU hosts. A host's key is printed once, when it is made; `add` again replaces it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add what to do, and with which host."""
        super().add_arguments(parser)
        parser.add_argument("action", choices=["add", "list", "accept", "release", "revoke"])
        parser.add_argument("name", nargs="?", default="")
        parser.add_argument("--uuid", help="accept, release: one GPU of the host; without it all of them")
        parser.add_argument("--as", dest="actor", metavar="USERNAME", help="accept: the member of the staff")
        parser.add_argument("--reason", default="revoked", help="revoke: why")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        try:
            getattr(self, f"_{options['action']}")(options)
        except hosts.HostError as error:
            raise CommandError(str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        key = hosts.add(options["name"], timezone.now())
        self.print_result(options, key.text, {"host": key.host, "serial": key.serial, "key": key.text})

    def _list(self, options: dict[str, Any]) -> None:
        found = [_data(item) for item in list_hosts(timezone.now())]
        lines = [
            f"{host['host']}  {gpu['gpu']}  {gpu['uuid']}  {gpu['state']}"
            f"{'' if gpu['is_alive'] else '  SILENT'}{'  ' + gpu['reason'] if gpu['reason'] else ''}"
            for host in found
            for gpu in host["gpus"] or [_NO_GPU]
        ]
        self.print_result(options, "\n".join(lines) or "no hosts", found)

    def _accept(self, options: dict[str, Any]) -> None:
        user = User.objects.filter(username=options["actor"], is_active=True).first()
        if user is None:
            raise CommandError(f"--as is {options['actor']!r}, which is no active user")
        made = [hosts.accept(row, user, timezone.now()) for row in _gpus(options)]
        names = ", ".join(str(row.host_gpu) for row in made)
        self.print_result(options, f"{len(made)} accepted: {names}", [row.pk for row in made])

    def _release(self, options: dict[str, Any]) -> None:
        made = [hosts.release(row, timezone.now()) for row in _gpus(options)]
        self.print_result(options, f"{len(made)} to be calibrated again", [job.pk for job in made])

    def _revoke(self, options: dict[str, Any]) -> None:
        host = _host(options["name"])
        hosts.revoke(host, options["reason"])
        self.print_result(options, f"{host} revoked", {"host": host.name})


_NO_GPU = {"gpu": "-", "uuid": "-", "state": "new", "is_alive": False, "reason": "no worker said hello yet"}


def _host(name: str) -> Host:
    host = Host.objects.filter(name=name).first()
    if host is None:
        raise CommandError(f"host is {name!r}; there are: {', '.join(Host.objects.values_list('name', flat=True))}")
    return host


def _gpus(options: dict[str, Any]) -> list[HostGpu]:
    rows = HostGpu.objects.select_related("host").filter(host=_host(options["name"]))
    chosen = list(rows.filter(uuid=options["uuid"]) if options["uuid"] else rows)
    if not chosen:
        raise CommandError(f"host {options['name']} has no such GPU; `host list` shows those that said hello")
    return chosen


def _data(item: HostHealth) -> dict[str, Any]:
    return {
        "host": item.host.name,
        "state": item.host.state,
        "serial": item.host.key_serial,
        "isolation": item.host.isolation,
        "versions": item.host.versions,
        "last_seen": rfc3339(item.host.last_seen),
        "gpus": [
            {
                "gpu": gpu.row.gpu_id,
                "uuid": gpu.row.uuid,
                "name": gpu.row.name,
                "driver": gpu.row.driver,
                "state": gpu.row.state,
                "reason": gpu.row.reason,
                "is_alive": gpu.is_alive,
                "job": gpu.job.pk if gpu.job else None,
                "calibrated_at": rfc3339(gpu.row.calibrated_at),
                "ratio": gpu.calibration.ratio if gpu.calibration else None,
            }
            for gpu in item.gpus
        ],
    }
