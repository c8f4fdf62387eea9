"""The script that makes the four sets, on planted models."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sets.cases import CASES, Case
from benchmarks.sets.run import make, transfer
from rlab.filters.palette import Palette
from rlab.victims import Victim
from tests.benchmarking.cases import brightness
from tests.benchmarking.test_ranking import dark


@pytest.mark.slow
def test_two_folders_are_made_verified_and_told_in_one_matrix(tmp_path: Path):
    def models() -> dict[str, Victim]:
        return {"low": brightness(0.35), "high": brightness(0.45)}

    source = Case("planted", dark, models, ("illuminate+@0.3,0.6",), 2, "npz", 6, 60)
    made, report, found = make(source, tmp_path, 6, 60)
    assert [each.name for each in made] == ["each", "free"]
    assert found["verified_mismatches"] == 0
    assert all((each.folder / "README.md").is_file() for each in made)
    rows = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in transfer(made, report).split("\n")}
    assert rows["low", "flip"].split("|")[5].strip() == "0%"
    assert ("no model", "s5") in rows


def test_every_source_names_filters_that_there_are():
    ranks = {"cifar": (2, 3), "photos": (2, 3), "beats": (1, 1), "clips": (3, 3)}
    for name, source in CASES.items():
        rank, channels = ranks[name]
        assert len(Palette.of(source.palette, rank, channels, 360.0, "mV" if rank == 1 else "")) > 2
