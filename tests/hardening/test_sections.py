"""Pages of a hardening: before and after, and the epochs of a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rlab.hardening.run import harden
from rlab.hardening.sections import hardening_page, spread_samples, write_before_after
from rlab.progress import quiet
from tests.hardening.toys import measured_toy, options, shortcut


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    hardened, measured = measured_toy(2)
    text = write_before_after(tmp_path / "page.html", hardened, measured, samples=1).read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    before, after = measured["before"].attack, measured["after"].attack
    assert before is not None
    assert after is not None
    still = min(1, int(after.succeeded.sum()))  # remaining failures
    pairs = len(spread_samples(before, after, 1))
    assert text.count("data:image/png;base64,") == 4 * pairs + 2 * still  # original and change, twice
    assert text.count("<svg") >= 3  # the curves
    assert "Remaining failures" in text
    for word in ("clean accuracy", "L2 to flip", "held-out"):
        assert word in text


def test_the_page_of_a_folder_lists_its_epochs(tmp_path: Path) -> None:
    toy = shortcut(1, n=32)
    hardened = harden(toy.victim, toy.batch, progress=quiet, **options(1, epochs=1))
    folder = hardened.save(tmp_path)
    log = json.loads((folder / "log.json").read_text())
    assert log["history"][0]["loss"] is None  # the original was not trained
    assert len(hardening_page(folder).sections[0].blocks[1].rows) == 2  # type: ignore[union-attr]
