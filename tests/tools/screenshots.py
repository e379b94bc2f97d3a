"""Take a picture of every kind of page at three widths in both themes: ``make screenshots``.

Without ``--base`` it loads the demo archive into a database of its own and serves that.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import sync_playwright

from tests.service.support import RECORDED, ROOT
from tests.web.browsing import FLAGS

WIDTHS = (1400, 820, 390)
THEMES = ("light", "dark")
FIXED = {
    "home": "/",
    "models": "/models/",
    "problems": "/problems/",
    "gpus": "/gpus/",
    "runs": "/runs/",
    "compare-empty": "/compare/",
    "withheld": "/withheld/",
    "releases": "/releases/",
    "release": "/releases/1/",
    "corrections": "/corrections/",
    "data": "/data/",
    "methodology": "/methodology/",
    "missing": "/nothing-here/",
}
FOUND = {
    "board": ("/", r'href="(/boards/[^"#?]+/)"'),
    "model": ("/models/", r'href="(/models/[^"#?]+/)"'),
    "problem": ("/", r'href="(/problems/[^"#?]+/[^"#?]+/)"'),
    "gpu": ("/gpus/", r'href="(/gpus/[^"#?]+/)"'),
    "run": ("/runs/?status=published", r'href="(/runs/[^"#?]+/)"'),
    "run-withheld": ("/withheld/", r'href="(/runs/[^"#?]+/)"'),
    "compare": ("board", r'href="(/compare/\?[^"]+)"'),
    "log": ("run", r'href="(/runs/[^"#?]+/files/benchmark\.log)#'),
    "source": ("run", r'href="(/runs/[^"#?]+/files/solution\.py)"'),
    "diff": ("source", r'href="(/runs/[^"#?]+/files/solution\.py\?against=[^"]+)"'),
}


@contextmanager
def serve() -> Iterator[str]:
    """Serve the demo archive from a database made for it; yields the address."""
    folder = ROOT / "var" / "screenshots-db"
    shutil.rmtree(folder, ignore_errors=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PROOFLINE_VAR_DIR": str(folder), "PROOFLINE_URL": f"http://127.0.0.1:{port}"}
    demo = [sys.executable, "manage.py", "demo", *RECORDED, "--no-serve"]
    subprocess.run(demo, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [
        sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--log-level", "warning", "leaderboard.wsgi:application",
    ]  # fmt: skip
    server = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield base
    finally:
        server.terminate()
        server.wait()


def fetch(base: str, path: str) -> str:
    """Return a page's text."""
    with urllib.request.urlopen(urljoin(base, path)) as answer:
        text: str = answer.read().decode()
        return text


def find_pages(base: str) -> dict[str, str]:
    """Return an address for every kind of page, found by the site's own links."""
    pages = dict(FIXED)
    for name, (start, pattern) in FOUND.items():
        found = re.search(pattern, fetch(base, pages.get(start, start)))
        if found:
            pages[name] = found.group(1).replace("&amp;", "&")
    return pages


def shoot(base: str, out: Path, names: list[str], *, is_full: bool) -> int:
    """Write ``<page>-<width>-<theme>.png`` for every page; return how many."""
    pages = {name: path for name, path in find_pages(base).items() if not names or name in names}
    out.mkdir(parents=True, exist_ok=True)
    count = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for theme in THEMES:
            for width in WIDTHS:
                size: Any = {"width": width, "height": 900}
                context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
                tab = context.new_page()
                for name, path in pages.items():
                    tab.goto(urljoin(base, path))
                    tab.screenshot(path=out / f"{name}-{width}-{theme}.png", full_page=is_full)
                    count += 1
                context.close()
        browser.close()
    return count


def main() -> None:
    """Read the command line and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="address of a running site; without it the demo archive is served")
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "screenshots")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages; all without it")
    parser.add_argument("--fold", action="store_true", help="the first screen only, not the whole page")
    options = parser.parse_args()
    if options.base:
        count = shoot(options.base, options.out, options.only, is_full=not options.fold)
    else:
        with serve() as base:
            count = shoot(base, options.out, options.only, is_full=not options.fold)
    sys.stdout.write(f"{count} pictures in {options.out}\n")


if __name__ == "__main__":
    main()
