"""The script that makes the four sets, on planted models; and the grid of the study on overlapping patches."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.overlap import Overlapping
from benchmarks.sets import SOURCES, Source, make, transfer
from rlab.filters.palette import Palette
from rlab.victims import Victim
from tests.benchmarking.cases import brightness
from tests.benchmarking.test_ranking import dark


def test_three_folders_are_made_verified_and_told_in_one_matrix(tmp_path: Path):
    def models() -> dict[str, Victim]:
        return {"low": brightness(0.35), "high": brightness(0.45)}

    source = Source("planted", dark, models, ("illuminate+@0.3,0.6",), 2, "npz", 6, 60, "low")
    made, found = make(source, tmp_path, 6, 60, 0)
    assert [each.name for each in made] == ["each", "agreement", "free"]
    assert found["mismatches"] == 0
    assert all((each.folder / "README.md").is_file() for each in made)
    rows = {
        tuple(cell.strip() for cell in line.split("|")[1:3]): line
        for line in transfer(made, found["report"]).split("\n")
    }
    assert rows["low + high", "flip"].rstrip("| ").endswith("0% | 0%")
    assert ("no model", "s5") in rows


def test_every_source_names_filters_that_there_are():
    ranks = {"cifar": (2, 3), "photos": (2, 3), "beats": (1, 1), "clips": (3, 3)}
    for name, source in SOURCES.items():
        rank, channels = ranks[name]
        assert len(Palette.of(source.palette, rank, channels, 360.0, "mV" if rank == 1 else "")) > 2


def test_a_window_covers_its_box_and_the_next_and_counts_all_of_it():
    grid = Overlapping((6, 4), (2, 2))
    for index in range(len(grid)):
        values = torch.zeros(len(grid), dtype=torch.int64)
        values[index] = 3
        covered = torch.zeros(6, 4, dtype=torch.int64)
        covered[grid.box(index)] = 3
        assert torch.equal(grid.expand(values), covered)
        assert grid.total(torch.ones(6, 4))[index] == int((covered > 0).sum())
