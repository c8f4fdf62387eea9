"""The page in a real browser: title and verdict are seen, nothing is fetched, nothing complains."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rlab.present.page import Banner, Gallery, Page, Picture, Section, write_page
from rlab.present.table import Cell, Table

DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: list[list[str | Cell]] = [[Cell("fails", "fail"), "success below 20%", "41.7%"]]
    sections = [
        Section(name, [Table(["", "requirement", "measured"], rows), Gallery([Picture(DOT, "a dot")])])
        for name in "ABC"
    ]
    return write_page(
        Page("An audit", sections, Banner(False, "1 of 3 not met")), tmp_path_factory.mktemp("page") / "report.html"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_chromium(page_file: Path, scheme: str) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    asked: list[str] = []
    said: list[str] = []
    with driver.sync_playwright() as play:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # Chromium refuses its sandbox to root
        browser = play.chromium.launch(executable_path=chromium, args=["--disable-gpu", *sandbox], timeout=120_000)
        page = browser.new_context(color_scheme=scheme, viewport={"width": 1000, "height": 800}).new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(page_file.as_uri())
        assert page.title() == "An audit: failed"
        assert page.locator("#verdict").is_visible()
        assert "1 of 3 not met" in page.locator("#verdict").inner_text()
        assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        back, ink = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
        browser.close()
    assert (_light(back), _light(ink)) == ((True, False) if scheme == "light" else (False, True))
    assert [url for url in asked if not url.startswith(("data:", page_file.as_uri()))] == []
    assert said == []


def _light(colour: str) -> bool:
    """'rgb(13, 17, 23)' -> False."""
    return sum(int(part) for part in colour.strip("rgb()").split(",")) > 3 * 128
