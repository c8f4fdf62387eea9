"""A file returns exactly the values that were queried."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.benchmarking.formats import FormatName, Shape, make_format, usual_format
from rlab.core.env import render
from rlab.data.batch import Batch
from rlab.data.eight_bit import EightBit
from rlab.errors import OptionError
from rlab.filters.palette import Palette
from tests.benchmarking.cases import PAIRS
from tests.helpers import CHANNELS, PALETTE, SIZES, make_batch, make_grid


@pytest.mark.parametrize(("rank", "form"), PAIRS)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)])
def test_a_file_returns_the_values_of_the_bank(
    rank: int, form: FormatName, bounds: tuple[float, float], tmp_path: Path
):
    batch = make_batch(rank, 3)
    low, high = bounds
    batch = Batch(low + (high - low) * batch.x, batch.y, bounds=bounds)
    stored_as = make_format(form, Shape.of(batch))
    x = stored_as.stored(batch.x)
    assert torch.equal(stored_as.stored(x), x)
    rows = [{"id": name, "place": at, "label": int(batch.y[at])} for at, name in enumerate(batch.ids)]
    written = list(stored_as.write(tmp_path / "level", rows, x))
    for sample, columns in zip(x, written, strict=True):
        held = stored_as.read(columns["file"])["x"][columns.get("row", 0)]
        assert torch.equal(torch.as_tensor(held), sample)
        assert columns["sha256"] == stored_as.digest(columns["file"], sample)


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_rendering_from_a_rounded_bank_is_rounding_what_is_rendered(rank: int, form: FormatName):
    batch, grid = make_batch(rank, 4), make_grid(rank)
    stored_as = make_format(form, Shape.of(batch))
    palette = Palette.of(PALETTE, rank, CHANNELS[rank])
    plain = palette.bank(stored_as.stored(batch.x), batch.bounds, [1, 2, 3, 4])
    stored = Palette(palette.entries, stored_as.stored).bank(stored_as.stored(batch.x), batch.bounds, [1, 2, 3, 4])
    draw = torch.Generator().manual_seed(0)
    assignment = torch.randint(0, len(palette) + 1, (4, len(grid)), generator=draw)
    assert torch.equal(render(stored, assignment, grid), stored_as.stored(render(plain, assignment, grid)))


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20))
def test_eight_bits_are_a_256th_away_at_most(values: list[float]):
    x = torch.tensor(values)
    near = EightBit((0.0, 1.0))(x)
    assert float((near - x).abs().max()) <= 0.5 / 255 + 1e-6
    assert torch.equal((near * 255).round() / 255, near)


@pytest.mark.parametrize(
    ("form", "rank", "sentence"),
    [
        ("png", 1, "the format png is for image data"),
        ("mp4", 2, "the format mp4 is for video data"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(form: FormatName, rank: int, sentence: str):
    with pytest.raises(OptionError, match=sentence):
        make_format(form, Shape.of(make_batch(rank, 2)))


def test_images_with_five_channels_cannot_be_png():
    batch = Batch(torch.rand(2, 5, *SIZES[2]), torch.zeros(2, dtype=torch.int64))
    assert usual_format(batch, from_files=True) == "npz"
    with pytest.raises(OptionError):
        make_format("png", Shape.of(batch))


def test_the_usual_format_is_that_of_the_source():
    assert [usual_format(make_batch(rank, 2), from_files=True) for rank in (1, 2, 3)] == ["npz", "png", "mp4"]
    assert [usual_format(make_batch(rank, 2), from_files=False) for rank in (1, 2, 3)] == ["npz", "png", "npz"]
