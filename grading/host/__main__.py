"""``python -m grading.host``: offer this host's GPUs to a grading service."""

import argparse
import logging
import os
import shlex
import sys
from pathlib import Path

from grading.host.agent import Agent
from grading.host.gpus import find_gpus, look_around
from grading.host.place import Place
from grading.tomldata import CatalogueError
from grading.wire import WireError, parse_key

_KEY, _BROKER = "PROOFLINE_HOST_KEY", "PROOFLINE_BROKER_URL"


def main(arguments: list[str]) -> int:
    """Start one worker per GPU and keep them running until told to stop."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        key = parse_key(os.environ.pop(_KEY, "") or options.key_file.read_text())
        gpus = find_gpus(key.host, options.device, options.gpu, options.slots)
    except (WireError, CatalogueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not options.broker:
        sys.stderr.write(f"error: the broker is not named; give --broker or {_BROKER}\n")
        return 2
    found = look_around()
    places = [
        Place(
            broker=options.broker,
            key=key,
            gpu=gpu,
            found=found,
            work=str(options.work.resolve()),
            evidence_dir=options.evidence_dir,
            grader=shlex.split(options.grader) if options.grader else [sys.executable, "-m", "grading.warden"],
        )
        for gpu in gpus
    ]
    return Agent(places).run()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m grading.host", description=__doc__)
    parser.add_argument("--broker", default=os.environ.get(_BROKER, ""), help=f"broker's address (default: {_BROKER})")
    parser.add_argument(
        "--key-file",
        type=Path,
        default=Path("host.key"),
        help=f"file with the line that `manage.py host add` printed; {_KEY} goes before it",
    )
    parser.add_argument("--device", default="cuda", help="cuda (every GPU), cuda:N, or cpu (default: cuda)")
    parser.add_argument("--gpu", default="", help="key of the board where the device's name proves several")
    parser.add_argument("--slots", type=int, default=1, help="with --device cpu: grades at once (default: 1)")
    parser.add_argument("--work", type=Path, default=Path("var/host"), help="folder for caches and grades")
    parser.add_argument("--evidence-dir", default="", help="folder that the web side shares, for large archives")
    parser.add_argument("--grader", default="", help="command that grades (default: this Python, -m grading.warden)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
