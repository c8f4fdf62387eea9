"""Groups of channels: how they are written, their names, their default, and what they do to an attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rlab
from rlab.core import defaults
from rlab.core.channels import LEADS, TOGETHER, TWELVE, group_names, parse_channels
from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import OptionError
from rlab.filters import FAMILIES
from rlab.policies.square import Square
from rlab.results.result import AttackResult
from rlab.runs.options import make_attack
from rlab.victims import Victim
from tests.helpers import CHANNELS, PATCHES, RANKS, filters_for, inside, make_batch, make_grid

BUDGETS = {"auto": 60}
THREES = (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
ANATOMICAL = (1, 0, 0, 1, 1, 0, 2, 2, 2, 3, 3, 3)


@pytest.mark.parametrize(
    ("spec", "count", "names", "groups"),
    [
        ("together", 3, (), ()),
        ("each", 3, (), (0, 1, 2)),
        ("each", 1, (), ()),
        ("1-3", 3, (), ()),
        ("1,3; 2", 3, (), (0, 1, 0)),
        ("2", 3, (), (-1, 0, -1)),
        ("9-10;1", 10, (), (1, -1, -1, -1, -1, -1, -1, -1, 0, 0)),
        (TWELVE, 12, LEADS, ANATOMICAL),
        ("I,II,III;aVR,aVL,aVF;V1-V3;V4-V6", 12, [name.upper() for name in LEADS], THREES),
        ("I-aVF;V1-V6", 12, LEADS, (0,) * 6 + (1,) * 6),
        ("V1-V3", 4, ("V3", "I", "V1", "V2"), (0, -1, 0, 0)),
        ("Fp1-F7;Cz-O2", 3, ("Fp1-F7", "Cz", "O2"), (0, 1, 1)),
    ],
)
def test_what_groups_mean(spec: str, count: int, names: tuple[str, ...], groups: tuple[int, ...]) -> None:
    assert parse_channels(spec, count, names) == groups


@pytest.mark.parametrize(
    ("spec", "names", "sentence"),
    [
        ("V9", LEADS, "groups of the channels I, II"),
        ("V1-V3", (), "which have no names, got 'V1-V3': .* ranges like 1-3$"),
        ("V3-V1", LEADS, "got 'V3-V1'"),
        ("1;2", LEADS, "got '1'"),
        ("13", (), "1 to 12"),
        ("0", (), "1 to 12"),
        ("1;;2", (), "got ''"),
        ("I,II;V1,I", LEADS, "I is named twice"),
    ],
)
def test_what_groups_cannot_mean(spec: str, names: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse_channels(spec, 12, names)


def test_names_of_groups() -> None:
    groups = PatchGrid((10,), (5,), THREES).groups
    assert group_names(groups, LEADS) == ("I, II, III", "aVR, aVL, aVF", "V1-V3", "V4-V6")
    assert group_names([(0, 1, 2), (3,), (4, 6, 7), (8, 9)]) == ("1-3", "4", "5, 7, 8", "9, 10")


def test_the_default_is_four_groups_for_twelve_leads_in_any_order_and_together_for_the_rest() -> None:
    ecg = Batch(
        torch.zeros(1, 12, 30), torch.zeros(1, dtype=torch.int64), bounds=UNBOUNDED, leads=LEADS[::-1], unit="mV"
    )
    assert make_attack(ecg).grid.channels == ANATOMICAL[::-1]
    assert make_attack(ecg, channels="together").grid.channels == ()
    for other in (
        replace(ecg, leads=()),
        replace(ecg, leads=(*LEADS[:11], "V7")),
        *(make_batch(rank, 1) for rank in RANKS),
    ):
        assert defaults.channels(other) == TOGETHER
        assert make_attack(other).grid.channels == ()


@pytest.mark.parametrize("spec", ["1,2;3", ["1,2", "3"], [[1, 2], [3]], (("1", "2"), ("3",))])
def test_groups_in_python(spec: object) -> None:
    assert make_attack(make_batch(2, 1), channels=spec).grid.channels == (0, 0, 1)


PARTIAL = [
    (name, rank) for rank in RANKS for name in filters_for(rank) if not FAMILIES[name](CHANNELS[rank])[0].whole
]  # filters that can happen to a part of an input


@pytest.mark.parametrize(("name", "rank"), PARTIAL)
def test_every_filter_changes_only_the_channels_of_its_patch(name: str, rank: int) -> None:
    """A filter sees all channels; a patch takes over the values of its own channels alone."""
    batch, last = make_batch(rank, 2), CHANNELS[rank] - 1
    made = make_attack(batch, palette=[name], patch=PATCHES[rank], channels="each")
    bank, per = made.palette.bank(batch.x, batch.bounds, [1, 2]), len(made.grid) // CHANNELS[rank]
    assignment = torch.zeros(2, len(made.grid), dtype=torch.int64)
    assignment[:, last * per :] = 1
    x = render(bank, assignment, made.grid)
    assert torch.equal(x[:, last], bank[:, 1, last])
    assert torch.equal(x[:, :last], batch.x[:, :last])


class OneChannel(Victim):
    """Looks at the mean of one channel in one box alone: class 0 while it is near one half, class 1 once it is not."""

    def __init__(self, box: tuple[slice, ...], channel: int) -> None:
        super().__init__(outputs="logits")
        self.box, self.channel = box, channel

    def _predict(self, x: Tensor) -> Tensor:
        away = (x[inside(self.box)][:, self.channel].flatten(1).mean(1) - 0.5).abs()
        return torch.stack([torch.full_like(away, 0.05), away], 1)


@pytest.mark.parametrize(
    ("policy", "rank"),
    [
        pytest.param(policy, rank, marks=() if rank == RANKS[at % 3] else (pytest.mark.slow,))
        for at, policy in enumerate(("auto", "square", "random", "greedy"))
        for rank in RANKS
    ],
)
def test_the_search_finds_the_one_channel_that_counts(rank: int, policy: str, tmp_path: Path) -> None:
    batch, box = make_batch(rank, 3), make_grid(rank).box(5)
    batch.x[inside(box)] = 0.5
    options: dict[str, Any] = {
        "palette": ["illuminate+@0.3"],
        "patch": PATCHES[rank],
        "budget": BUDGETS.get(policy, 300),
        "policy": policy,
        "until": "budget",
    }
    victim = OneChannel(box, 1)
    result = rlab.attack(victim, batch, channels="each", out=tmp_path / "run", progress=False, **options)
    assert result.succeeded.all()
    assert (result.final["l0_patches"] == 1).all()
    assert result.channel_masks[:, 1].any()
    changed = result.perturbed != result.original
    assert not changed[:, [channel for channel in range(CHANNELS[rank]) if channel != 1]].any()
    assert torch.equal(result.channel_masks, changed)
    assert torch.equal(result.masks, changed.any(1))
    again = AttackResult.load(tmp_path / "run")
    assert torch.equal(again.channel_masks, changed)
    assert again.setting == result.setting
    assert again.setting.groups == tuple(str(channel + 1) for channel in range(CHANNELS[rank]))


def test_free_pixels_refuse_to_leave_channels_out() -> None:
    assert make_attack(make_batch(2, 1), palette="pixels", channels="1;2,3").grid.channels == (0, 1, 1)
    with pytest.raises(OptionError, match="changes all channels"):
        make_attack(make_batch(2, 1), palette="pixels", channels="1;3")


def test_a_channel_left_out_stays_untouched() -> None:
    batch = make_batch(2, 3)
    made = make_attack(batch, palette=["illuminate+@0.3"], patch=4, channels="1;3", policy=Square(), budget=20)
    bank = made.palette.bank(batch.x, batch.bounds, [0, 1, 2])
    x = render(bank, torch.ones(3, len(made.grid), dtype=torch.int64), made.grid)
    assert torch.equal(x[:, 1], batch.x[:, 1])
    assert torch.equal(x[:, [0, 2]], bank[:, 1, [0, 2]])


def test_what_happens_to_whole_records_happens_in_all_leads() -> None:
    x = torch.randn(1, 12, 100, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(1, dtype=torch.int64)
    ecg = Batch(x, y, bounds=UNBOUNDED, leads=LEADS, unit="mV", rate=100.0)
    assert make_attack(ecg, palette="limb_lead_reversal").grid.channels == ()
    with pytest.raises(OptionError, match="whole record"):
        make_attack(ecg, palette="limb_lead_reversal", channels="each")
