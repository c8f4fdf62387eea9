"""Every kind of page in Chromium, on a desk and on a phone: it fits, is legible, describes its pictures and fetches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.explanation.explanation import Explanation, MethodComparison
from rlab.present.page import write_page
from rlab.results.page import attack_page
from tests.command import rlab_command
from tests.hardening.toys import measured_toy
from tests.present.chromium import PHONE, SCREEN, Opened, open_browser, visited
from tests.results.plots.fixtures import Recipe, make_result
from tests.serve.cases import copy_runs, grown, served

pytestmark = pytest.mark.slow

ECG = {"bounds": UNBOUNDED, "unit": "mV"}
RUNS = {
    "image": Recipe((16, 24), (4, 4), 3, n=18),
    "beat": Recipe((360,), (18,), 2, n=12, rate=360.0, share=0.15, **ECG),  # type: ignore[arg-type]
    "12 leads": Recipe((1000,), (25,), 12, n=8, rate=100.0, **ECG),  # type: ignore[arg-type]
    "clip": Recipe((6, 32, 32), (2, 8, 8), 3, n=8),
}
EXPLAINED = {"explained image": (3, 16, 16), "explained beat": (2, 360), "explained clip": (3, 6, 16, 16)}
DIGITS = ("demo:digits", "demo:digits", "--limit", 2)
COMMANDS: dict[str, tuple[str | int, ...]] = {
    "comparison": ("compare", *DIGITS, "--budget", 40, "--policies", "random,square"),
    "benchmark": ("benchmark", "make", *DIGITS, "--patch", 2, "--ladder", "times:1.5", "--steps", 3, "--budget", 60),
}
SERVED = {
    "list of runs": "/",
    "list of samples": "/samples/many",
    "served run": "/run/many",
    "served sample": "/sample/0/run_ecg",
}
CHANGES, HARDENED = "what changed", "before and after"
PAGES = (*RUNS, *EXPLAINED, *COMMANDS, CHANGES, HARDENED, *SERVED)

# Words whose contrast with what lies behind them is below AA: 4.5, or 3 for large ones. Words over pictures are left out.
FAINT = """() => {
  const shade = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return { c: [r, g, b], a }; };
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => c.reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
  const behind = node => {
    const { c, a } = node ? shade(getComputedStyle(node).backgroundColor) : { c: [255, 255, 255], a: 1 };
    return a > .99 ? c : behind(node.parentElement);
  };
  const written = node => [...node.childNodes].some(each => each.nodeType === 3 && each.textContent.trim());
  const told = [];
  for (const node of document.querySelectorAll("body *:not(script, style, template, .stage *)")) {
    if (!written(node) || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), ink = shade(node instanceof SVGElement ? style.fill : style.color).c;
    const [high, low] = [light(ink), light(behind(node))].sort((a, b) => b - a), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if ((high + .05) / (low + .05) < least) told.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}`);
  }
  return told;
}"""
BARE = (
    "[...document.images].filter(each => !each.alt && !each.closest('.stage')).map(each => each.outerHTML.slice(0, 80))"
)
SIZELESS = "[...document.images].filter(each => !each.getAttribute('height') && !each.closest('.stage')).length"
UNNAMED = "[...document.querySelectorAll('svg:not([aria-hidden]):not(.chip svg)')].filter(e => !e.ariaLabel).length"
TALL = (
    "[...document.querySelectorAll('.stage, .picture img, .chart svg, .triple')]"
    ".filter(each => each.getBoundingClientRect().height > innerHeight).length"
)


CUT = "[...document.querySelectorAll('figure')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_browser()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The address of a page by its name; each is written when first asked for."""
    folder = tmp_path_factory.mktemp("screens")
    root = copy_runs(folder / "runs")
    grown(40).save(root / "many")
    with served(root) as client:

        def find(name: str) -> str:
            if name in SERVED:
                return str(client.base_url).rstrip("/") + SERVED[name]
            path = folder / f"{name}.html"
            if not path.exists():
                write(name, path)
            return path.as_uri()

        yield find


def write(name: str, path: Path) -> None:
    if name in RUNS:
        write_page(attack_page(make_result(RUNS[name]), samples=3), path)
    elif name in EXPLAINED:
        write_page(MethodComparison(*explained(EXPLAINED[name])).view(), path)
    elif name == CHANGES:
        runs = copy_runs(path.with_suffix(""))
        shutil.copytree(runs / "run_digits", runs / "again")
        assert rlab_command("report", runs / "run_digits", runs / "again", "--out", path).code == 0
    elif name == HARDENED:
        write_page(measured_toy(2).view(samples=1), path)
    else:
        run = path.with_suffix("")
        assert rlab_command(*COMMANDS[name], "--out", run).code == 0
        assert rlab_command("report", run, "--out", path).code == 0


def explained(size: tuple[int, ...]) -> tuple[dict[str, Explanation], Batch]:
    drawn = torch.Generator().manual_seed(0)
    x, maps = torch.rand(2, *size, generator=drawn), torch.rand(2, *size[1:], generator=drawn)
    batch = Batch(x, torch.tensor([0, 1]), ids=("one", "two"), classes=("cat", "dog"), rate=360.0, masks=maps > 0.7)
    method = Explanation("rise", maps, maps > 0.5, batch.y, torch.tensor([20, 20]), "top half", 1.0)
    return {"rise": method, "occlusion": method}, batch


def check_screen(view: Opened) -> None:
    page = view.page
    assert view.fits()
    assert page.evaluate(BARE) == []
    assert page.evaluate(SIZELESS) == 0  # the page would jump while loading
    assert page.evaluate(UNNAMED) == 0
    assert page.evaluate(TALL) == 0
    assert page.evaluate(CUT) == []
    assert page.evaluate(FAINT) == []


@pytest.mark.parametrize(
    "fault",
    [
        "<p style='color: #999'>faint</p>",
        "<img src='data:,' height='1'>",
        "<img src='data:,' alt='a dot'>",
        "<svg viewBox='0 0 1 1'></svg>",
        "<div style='width: 2000px'>wide</div>",
        "<div class='stage' style='height: 2000px'></div>",
        "<figure style='width: 9rem; overflow: hidden'><div style='width: 10rem'>cut</div></figure>",
    ],
)
def test_a_planted_fault_is_found(browser: Any, address: Callable[[str], str], fault: str) -> None:
    with visited(browser, address("image"), SCREEN) as view:
        check_screen(view)
        view.page.evaluate("fault => document.querySelector('main').insertAdjacentHTML('beforeend', fault)", fault)
        with pytest.raises(AssertionError):
            check_screen(view)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [SCREEN, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_can_be_read(
    browser: Any, address: Callable[[str], str], name: str, size: tuple[int, int], scheme: str
) -> None:
    with visited(browser, address(name), size, scheme) as view:
        if name == "served run":
            view.page.wait_for_selector("#list tbody tr")  # fetched after the page
        check_screen(view)
        if name in RUNS and size == SCREEN:
            boxes = [triple.bounding_box() for triple in view.page.locator(".triple").all()]
            assert boxes
            assert all(box["y"] + box["height"] <= SCREEN[1] for box in boxes)
        if name in EXPLAINED:
            maps = view.page.locator(".viewer:has(.layer, .band)")
            assert maps.count() == maps.locator(".ramp").count() > 0
