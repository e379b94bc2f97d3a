"""A browser for tests: Debian's Chromium, what it requests, and what breaks on its pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_WATCH = """
window.broken = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.broken.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
window.shift = 0; window.paint = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.paint = entry.startTime;
}).observe({ type: "largest-contentful-paint", buffered: true });
"""


@dataclass
class Reader:
    """One reader's tab, and what happened in it: addresses requested, errors on the console."""

    tab: Any
    base: str
    requested: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go to a page of the site."""
        self.tab.goto(self.base + path)

    def place(self) -> str:
        """Return where the tab is, without the host."""
        return str(self.tab.url).removeprefix(self.base)

    def foreign(self) -> list[str]:
        """Return what was requested from anywhere but the site itself."""
        host = urlsplit(self.base).netloc
        return [url for url in self.requested if urlsplit(url).netloc != host and not url.startswith("data:")]

    def broken(self) -> list[str]:
        """Return what the security policy refused, and what else the console complained of."""
        return [*self.tab.evaluate("window.broken"), *self.said]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def reading(
    base: str, width: int = 1400, theme: str = "light", *, has_script: bool = True, bypass: bool = False
) -> Iterator[Reader]:
    """Open a browser at a width in a theme. No database may be used by the caller's thread inside."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size: Any = {"width": width, "height": 900}
        scheme: Any = theme
        context = browser.new_context(
            viewport=size,
            color_scheme=scheme,
            java_script_enabled=has_script,
            bypass_csp=bypass,
            reduced_motion="reduce",
        )
        if has_script:
            context.add_init_script(_WATCH)
        tab = context.new_page()
        tab.set_default_timeout(15_000)
        reader = Reader(tab, base)
        tab.on("request", lambda request: reader.requested.append(request.url))
        tab.on("console", lambda message: reader.said.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: reader.said.append(str(error)))
        try:
            yield reader
        finally:
            browser.close()
