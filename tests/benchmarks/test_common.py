"""Results that benchmarks keep: which one stands in for a shorter run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import common
from rlab.comparison import AttackOutcome


def keep(folder: Path, samples: int) -> None:
    yes = torch.ones(samples, dtype=torch.bool)
    held = AttackOutcome(yes, yes, torch.arange(samples), torch.ones(samples).double(), 10, 99)
    (folder / f"net-square-n{samples}-b10-s0.json").write_text(json.dumps(held.plain()))


def test_the_longest_kept_result_gives_its_first_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RAW", tmp_path)
    assert common.kept_longest("net-square", "-b10-s0", 2) is None
    keep(tmp_path, 4)
    keep(tmp_path, 12)
    found = common.kept_longest("net-square", "-b10-s0", 6)
    assert found is not None
    assert found.queries.tolist() == [0, 1, 2, 3, 4, 5]
    assert common.kept_longest("net-square", "-b10-s0", 13) is None  # too short: it has to be run
    assert common.kept_longest("net-square", "-b20-s0", 6) is None  # another budget


def test_a_section_is_written_in_place_of_the_one_so_named(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nrules\n\n## One\n\nold\n\n## Two\n\nkept\n")
    common.replace_section(page, "## One\n\nnew")
    common.replace_section(page, "## Three\n\nlast")
    assert page.read_text() == "# Title\n\nrules\n\n## One\n\nnew\n\n## Two\n\nkept\n\n## Three\n\nlast\n"
