"""Pages in a real browser: they are seen, fit a phone, do what they offer, fetch nothing and complain about nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from rlab.data.batch import UNBOUNDED, Batch
from rlab.explanation.explanation import Explanation
from rlab.present.inline import image_address
from rlab.present.page import Banner, Gallery, Page, Picture, Section, write_page
from rlab.present.table import Cell, Table
from rlab.results.metrics import key_numbers
from rlab.results.page import attack_sections
from rlab.results.result import AttackResult, Status
from tests.present.chromium import PHONE, open_browser, opened
from tests.results.plots.fixtures import Recipe, make_result

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
RECIPES = {
    "signal": Recipe((256,), (16,), 2, n=12, unit="mV", rate=250.0, bounds=UNBOUNDED),
    "image": Recipe((16, 24), (4, 4), 3, n=18),
    "clip": Recipe((6, 16, 24), (2, 8, 8), 3, n=3, status=(Status.SUCCEEDED,)),
}


def result_of(kind: str) -> AttackResult:
    result = make_result(RECIPES[kind])
    names = (EVIL, *(f"class {k}" for k in range(1, result.before.shape[1])))
    ids = (EVIL, *result.ids[1:])
    peaks = tuple((100,) for _ in result.ids) if kind == "signal" else ()
    return replace(result, ids=ids, r_peaks=peaks, setting=replace(result.setting, classes=names))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_browser()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for kind in RECIPES:
        result = result_of(kind)
        page = Page(f"Attack {kind}", attack_sections(result), lead=EVIL, numbers=key_numbers(result))
        made[kind] = write_page(page, folder / f"{kind}.html")
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_chromium(browser: Any, tmp_path: Path, scheme: str) -> None:
    rows: list[list[str | Cell]] = [[Cell("fails", "fail"), "success below 20%", "41.7%"]]
    dot = image_address(Image.new("RGB", (4, 4)))
    sections = [
        Section(name, [Table(["", "requirement", "measured"], rows), Gallery([Picture(dot, "a dot")])])
        for name in "ABC"
    ]
    path = write_page(Page("An audit", sections, Banner(False, "1 of 3 not met")), tmp_path / "report.html")
    with opened(browser, path, scheme=scheme) as view:
        page = view.page
        assert page.title() == "An audit: failed"
        assert "1 of 3 not met" in page.locator("#verdict").inner_text()
        assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
        back, ink = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
        assert (_light(back), _light(ink)) == ((True, False) if scheme == "light" else (False, True))
        panel = page.evaluate("getComputedStyle(document.querySelector('figure')).backgroundColor")
        assert _light(panel) == (scheme == "light")


def _light(colour: str) -> bool:
    """'rgb(13, 17, 23)' -> False."""
    return sum(int(part) for part in colour.strip("rgb()").split(",")) > 3 * 128


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECIPES)
def test_a_sample_can_be_played_with(browser: Any, pages: dict[str, Path], kind: str) -> None:
    with opened(browser, pages[kind], PHONE) as view:
        assert view.fits()
        assert view.page.locator(".numbers dd").first.is_visible()
        first = view.page.locator(".viewer").first
        first.scroll_into_view_if_needed()
        box, shot = first.locator(".stage"), lambda: first.locator(".stage").screenshot()
        slider = first.locator(".wipe input")
        slider.fill("0")
        original = shot()
        slider.focus()
        for _ in range(3):
            slider.press("End")
        assert slider.input_value() == "100"
        rail, seen = slider.bounding_box(), box.bounding_box()  # at both ends the middle of the thumb is on the line
        assert rail["x"] + 8 == pytest.approx(seen["x"], abs=2)
        assert rail["x"] + rail["width"] - 8 == pytest.approx(seen["x"] + seen["width"], abs=2)
        assert seen["height"] <= PHONE[1]
        perturbed = shot()
        assert original != perturbed
        first.locator(".overlay input").fill("1")
        assert shot() != perturbed
        before = shot()
        first.locator(".change input").check()
        assert shot() != before
        wide = box.bounding_box()["width"]
        first.locator(".zoom input").fill("3")
        assert box.bounding_box()["width"] == pytest.approx(3 * wide, rel=0.02) or kind == "signal"
        assert view.fits()
        first.locator(".enlarge").click()
        assert first.bounding_box()["width"] == PHONE[0]
        view.page.keyboard.press("Escape")
        assert first.bounding_box()["width"] < PHONE[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("signal", (2, 64)), ("image", (3, 8, 8)), ("clip", (1, 6, 8, 8))])
def test_heat_fades_over_its_input(browser: Any, tmp_path: Path, kind: str, size: tuple[int, ...]) -> None:
    drawn = torch.Generator().manual_seed(0)
    batch = Batch(torch.rand(1, *size, generator=drawn), torch.tensor([0]), ids=(EVIL,), classes=(EVIL, "b"), rate=25.0)
    maps = torch.rand(1, *size[1:], generator=drawn)
    explanation = Explanation("rise", maps, maps > 0.5, batch.y, torch.tensor([20]), "top half", 1.0, inputs=batch)
    path = write_page(explanation.view(), tmp_path / "page.html")
    with opened(browser, path, PHONE) as view:
        assert view.fits()
        (heat,) = view.page.locator(".viewer").all()
        assert heat.locator("label.wipe, label.change").count() == 0
        shots = []
        for share in ("0", "0.5", "1"):
            heat.locator(".overlay input").fill(share)
            shots.append(heat.locator(".stage").screenshot())
        assert len(set(shots)) == 3
        if kind == "clip":
            heat.locator(".play input").fill("5")
            view.wait("document.querySelector('.play output').textContent == 'frame 6 of 6'")
            assert heat.locator(".stage").screenshot() != shots[-1]


@pytest.mark.slow
def test_a_clip_shows_the_frame_that_the_slider_is_at(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["clip"]) as view:
        first = view.page.locator(".viewer").first
        first.scroll_into_view_if_needed()
        small = first.locator(".stage").bounding_box()["width"]
        first.locator(".enlarge").click()
        assert first.locator(".stage").bounding_box()["width"] > 2 * small
        first.locator(".enlarge").click()
        frame, stage = first.locator(".play input"), first.locator(".stage")
        frame.fill("0")
        earlier = stage.screenshot()
        frame.fill("5")
        view.wait("document.querySelector('.viewer .play output').textContent == 'frame 6 of 6'")
        shown = view.page.evaluate(
            "[...document.querySelectorAll('.viewer:first-child .marks path')].filter(m => m.style.display != 'none')"
            ".every(m => m.dataset.first <= 5 && m.dataset.last >= 5)"
        )
        assert shown
        assert stage.screenshot() != earlier


@pytest.mark.slow
def test_tables_sort_and_filter(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["image"]) as view:
        table = view.page.locator("#samples table")
        rows = "[...document.querySelectorAll('#samples tbody tr:not([hidden])')]"
        column = f"{rows}.map(r => Number(r.cells[4].dataset.key))"
        button = table.locator("th", has_text="queries").locator("button")
        button.focus()
        button.press("Enter")
        queries = view.page.evaluate(column)
        assert queries == sorted(queries)
        assert len(set(queries)) > 1
        button.click()
        assert view.page.evaluate(column) == sorted(queries, reverse=True)
        search = view.page.locator("#samples .filter input")
        middle = sorted(queries)[len(queries) // 2]
        search.fill(f"queries<{middle}")
        assert view.page.evaluate(column) == [q for q in sorted(queries, reverse=True) if q < middle]
        search.fill("flipped")
        rows = table.locator("tbody tr:visible")
        assert 0 < rows.count() < len(queries)
        assert all("flipped" in text for text in rows.all_inner_texts())
        search.fill("no such word")
        assert view.page.locator(".viewer:visible").count() == 0
        search.fill("")
        assert view.page.locator(".viewer").count() == view.page.locator(".viewer:not([hidden])").count() > 0


@pytest.mark.slow
def test_users_words_stay_words(browser: Any, pages: dict[str, Path]) -> None:
    for path in pages.values():
        with opened(browser, path) as view:
            view.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
            assert EVIL in view.page.locator("header").inner_text()
            assert EVIL in view.page.locator("#samples").inner_text()
            assert view.page.locator("img[src=x]").count() == 0


@pytest.mark.slow
def test_a_page_can_be_printed(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["image"]) as view:
        content = view.page.pdf()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Subtype /Image") + content.count(b"/Subtype/Image") >= 2
