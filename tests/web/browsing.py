"""A browser for tests: Debian's Chromium, what it requests, and what breaks on its pages."""

import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
window.shift = 0; window.paint = 0; window.moved = "";
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) {
    window.shift += entry.value;
    window.moved ||= (entry.sources[0]?.node?.outerHTML ?? "").slice(0, 120);
  }
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

    def follow(self, link: Any) -> None:
        """Click what leads to another page, and wait until that page is whole."""
        with self.tab.expect_navigation():
            link.click()

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

    def moves(self) -> list[str]:
        """Return what moved while the page loaded: nothing, or the first thing that did."""
        has_moved = self.tab.evaluate("window.shift") > 0.01
        return [f"moves while it loads: {self.tab.evaluate('window.moved')}"] if has_moved else []

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


class _SlowLine(socketserver.BaseRequestHandler):
    """Hands a server's answers on a kilobyte at a time, as a slow line does."""

    def handle(self) -> None:
        with socket.create_connection(self.server.behind) as site:  # type: ignore[attr-defined]
            threading.Thread(target=self._ask, args=[site], daemon=True).start()
            while piece := site.recv(1024):
                self.request.sendall(piece)
                time.sleep(0.02)

    def _ask(self, site: socket.socket) -> None:
        with suppress(OSError):
            while asked := self.request.recv(65536):
                site.sendall(asked)
            site.shutdown(socket.SHUT_WR)


@contextmanager
def slow_line(base: str) -> Iterator[str]:
    """Give the address of a site as seen from the end of a slow line."""
    behind = urlsplit(base)
    with socketserver.ThreadingTCPServer((str(behind.hostname), 0), _SlowLine) as line:
        line.daemon_threads = True
        line.behind = (behind.hostname, behind.port)  # type: ignore[attr-defined]
        line.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=line.serve_forever, daemon=True).start()
        yield f"http://{behind.hostname}:{line.server_address[1]}"
        line.shutdown()


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
