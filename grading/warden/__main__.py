"""``python -m grading.warden PROBLEM ...``: the ``grade`` command for hosts that have no Django."""

import argparse
import sys

from grading.warden.cli import GradeError, add_arguments, run


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m grading.warden", description="Grade one solution of a problem.")
    add_arguments(parser)
    try:
        return run(vars(parser.parse_args(arguments)), lambda text: sys.stdout.write(text + "\n"))
    except GradeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
