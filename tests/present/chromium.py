"""A real browser for tests, on a page opened from disk: what it asked for and what it complained about is kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

PHONE, DESK, SCREEN = (390, 844), (1200, 900), (1280, 800)


@dataclass
class Opened:
    page: Any
    url: str
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def check_quiet(self) -> None:
        """Nothing was fetched, and nothing complained."""
        assert [url for url in self.asked if not url.startswith(("data:", self.url))] == []
        assert self.said == []

    def wait(self, expression: str) -> None:
        """Until it holds: the page lets nothing be evaluated in it, so that it is asked again and again from here."""
        end = time.monotonic() + 15
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"never came true: {expression}"
            self.page.wait_for_timeout(50)

    def fits(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def open_browser() -> Iterator[Any]:
    """The body of a fixture; skipped where there is no Chromium or no playwright to drive it."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as play:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # Chromium refuses its sandbox to root
        browser = play.chromium.launch(executable_path=chromium, args=["--disable-gpu", *sandbox], timeout=120_000)
        yield browser
        browser.close()


@contextmanager
def visited(browser: Any, url: str, size: tuple[int, int] = DESK, scheme: str = "light") -> Iterator[Opened]:
    """The page, looked at so wide and high; in the end it must have stayed quiet and asked its own server alone."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
    host = urlsplit(url)
    view = Opened(context.new_page(), f"{host.scheme}://{host.netloc}" if host.netloc else url)
    view.page.on("request", lambda request: view.asked.append(request.url))
    view.page.on("console", lambda message: view.said.append(message.text))
    view.page.on("pageerror", lambda error: view.said.append(str(error)))
    view.page.goto(url)
    yield view
    view.check_quiet()
    context.close()


def opened(
    browser: Any, path: Path, size: tuple[int, int] = DESK, scheme: str = "light"
) -> AbstractContextManager[Opened]:
    return visited(browser, path.as_uri(), size, scheme)
