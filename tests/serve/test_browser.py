"""The server's pages in Chromium: filters, running runs and uploads, without requests to other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.present.chromium import PHONE, open_browser, visited
from tests.serve.cases import MODELS, copy_runs, grown, only_wait, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_browser()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = copy_runs(tmp_path_factory.mktemp("browsed") / "runs")
    grown(40).save(root / "many")
    with pytest.MonkeyPatch.context() as patch:
        only_wait(patch)
        with served(root, models=MODELS) as client:
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


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/start", "/own"])
def test_pages_fit_a_phone(browser: Any, address: str, path: str):
    with visited(browser, address + path, PHONE) as view:
        assert view.fits()


def test_a_run_is_watched_and_stopped(browser: Any, address: str):
    with visited(browser, address + "/start") as view:
        page = view.page
        page.fill("[name=name]", "watched")
        page.click("[formaction='/start']")
        page.wait_for_selector("[data-of=said]:has-text('waiting')")
        assert page.locator("[data-of=samples]").text_content() == "0"
        page.click("form[action^='/stop'] button")
        page.wait_for_selector("#state:has-text('stopped')")


def test_a_file_is_uploaded_or_its_error_is_shown(browser: Any, address: str, tmp_path: Path):
    (tmp_path / "beat.csv").write_text("1\n2\n")
    (tmp_path / "empty.csv").write_text("")
    with visited(browser, address + "/own") as view:
        page = view.page
        page.set_input_files("[name=file]", str(tmp_path / "empty.csv"))
        page.click("#own button")
        view.wait("document.querySelector('#own output').textContent.includes('empty')")
        view.said.clear()  # Chromium tells of the 422
        page.set_input_files("[name=file]", str(tmp_path / "beat.csv"))
        page.click("#own button")
        page.wait_for_url("**/run/own-beat-attack-*")
        page.click("form[action^='/stop'] button")
        page.wait_for_selector("#state:has-text('stopped')")


DROP = """content => {
  const held = new DataTransfer();
  held.items.add(new File([content], "clip.mp4", { type: "video/mp4" }));
  for (const name of ["dragover", "drop"])
    document.getElementById("own").dispatchEvent(new DragEvent(name, { dataTransfer: held, bubbles: true, cancelable: true }));
}"""


def test_a_dropped_clip_is_uploaded_and_its_result_is_shown(browser: Any, address: str):
    with visited(browser, address + "/own") as view:
        page = view.page
        page.evaluate(DROP, "a clip's bytes")
        assert page.evaluate("document.querySelector('#own [name=file]').files[0].name") == "clip.mp4"
        page.select_option("[name=do]", "explain")
        page.click("#own button")
        page.wait_for_url("**/run/own-clip-explain-*")
        page.evaluate("window.same = true")
        page.wait_for_selector("[data-of=said]:has-text('waiting')")
        with closing(httpx.Client(base_url=address)) as other:  # someone else stops it
            stop = page.locator("form[action^='/stop']")
            words = {"csrf": stop.locator("[name=csrf]").get_attribute("value")}
            other.post(stop.get_attribute("action"), data=words, headers={"Origin": address})
        page.wait_for_selector("#state:has-text('stopped')")
        assert page.evaluate("window.same")
