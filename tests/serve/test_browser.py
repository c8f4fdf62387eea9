"""The server's pages in Chromium: filters and running runs, without requests to other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.present.chromium import open_browser, visited
from tests.serve.cases import copy_runs, grown, live_run, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_browser()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_runs(tmp_path_factory.mktemp("browsed") / "runs")
    grown(40).save(root / "many")
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with served(root) as client:
        yield str(client.base_url).rstrip("/")


def test_filters_update_the_list_at_once(browser: Any, address: str):
    with visited(browser, address + "/samples/many") as view:
        page = view.page
        assert page.locator("tbody tr").count() == 50
        page.evaluate("window.same = true")  # lost if the page reloads
        page.select_option("[name=label]", "3")
        view.wait("document.querySelectorAll('tbody tr').length === 12")
        assert "label=3" in page.url
        page.select_option("[name=label]", "")
        view.wait("document.querySelectorAll('tbody tr').length === 50")
        page.click("a[rel=next]")
        view.wait("document.querySelector('output').textContent.includes('page 2 of 3')")
        assert page.evaluate("window.same")
        page.click("tbody tr:first-child a")
        page.wait_for_selector(".viewer")
        assert "/sample/50/many" in page.url


def test_the_samples_of_a_run_are_browsed_on_its_page(browser: Any, address: str):
    with visited(browser, address + "/run/many?status=succeeded") as view:
        page = view.page
        page.wait_for_selector("#list tbody tr")
        page.locator("#list").scroll_into_view_if_needed()
        view.wait("[...document.querySelectorAll('#list img')].slice(0, 4).every(each => each.naturalWidth)")
        assert page.input_value("[name=status]") == "succeeded"
        page.fill("[name=words]", "-7")
        view.wait("document.querySelectorAll('#list tbody tr').length < 50")
        assert all("-7" in name for name in page.locator("#list td:nth-child(2)").all_inner_texts())
        assert "/run/many?" in page.url
        assert "words=-7" in page.url
        page.select_option("[name=sort]", "-l2")
        view.wait("location.search.includes('sort=-l2')")
        far = [float(text) for text in page.locator("#list td:nth-child(6)").all_inner_texts()]
        assert far == sorted(far, reverse=True)
        assert len(far) > 1
        page.click("text=clear the filters")
        view.wait("document.querySelectorAll('#list tbody tr').length === 50")
        assert page.input_value("[name=words]") == ""
        page.click("#list tbody tr:first-child td.thumb a")
        page.wait_for_selector(".viewer")
        page.click("nav.back a:has-text('many')")
        page.wait_for_selector(".strip")
        page.click("nav.back a:has-text('All runs')")
        page.wait_for_selector("h1:has-text('runs')")


def test_a_run_is_watched_to_its_end(browser: Any, root: Path, address: str):
    lock = live_run(root / "live")
    with visited(browser, address + "/run/live") as view:
        page = view.page
        page.wait_for_selector("[data-of=samples]:has-text('0')")
        page.evaluate("window.same = true")  # lost if the page reloads
        lock.unlink()
        page.wait_for_selector("#state:has-text('stopped')")
        assert page.evaluate("window.same")
