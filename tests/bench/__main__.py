"""Run every benchmark of this folder, or those named on the command line."""

import importlib
import os
import pkgutil
import sys
import tempfile

import tests.bench


def main(names: list[str]) -> None:
    """Give each benchmark a database of its own and print what it measured."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROOFLINE_VAR_DIR"] = folder
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        known = sorted(
            module.name for module in pkgutil.iter_modules(tests.bench.__path__) if module.name != "__main__"
        )
        for name in names or known:
            importlib.import_module(f"tests.bench.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
