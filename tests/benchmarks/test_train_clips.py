"""The script that trains the video victims, on clips made here: two classes that differ in brightness."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from benchmarks.data import CLIP_FRAMES, CLIP_SIZE
from benchmarks.victims import train_clips
from benchmarks.victims.clips import CLIP_MEAN, CLIP_STD, clip_victim
from rlab.data.load import load
from tests.data.clip_files import encode


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    rows, draw = ["clip,label,group"], np.random.default_rng(0)
    for group in (4, 7, 8, 9, 25):
        for label, level in (("dark", 40), ("light", 200)):
            name = f"v_{label}_g{group:02d}_c01.mp4"
            light = level + draw.integers(-30, 30, (30, 1, 1, 1))
            frames = (light + draw.integers(0, 9, (30, 120, 160, 3))).clip(0, 255).astype(np.uint8)
            encode(frames, 25, folder / name, 23, "medium")
            rows.append(f"{name},{label},{group}")
    (folder / "v_dark_g10_c01.mp4").write_bytes(b"broken")
    (folder / "labels.csv").write_text("\n".join([*rows, "v_dark_g10_c01.mp4,dark,10"]) + "\n")
    return folder


def options(out: Path, **given: Any) -> Namespace:
    usual = {"pack": None, "unpack": None, "packed": None, "clips": None, "only": ["tsn"], "out": out, "minutes": 1.0}
    return Namespace(
        **(usual | {"steps": 2, "batch": 2, "seed": 0, "device": "cpu", "every": 1, "quality": 80} | given)
    )


@pytest.fixture(scope="module")
def pack(clips: Path) -> Path:
    train_clips.run(options(clips, pack=clips / "pack" / "clips.npz", clips=clips))
    return clips / "pack" / "clips.npz"


def test_a_pack_holds_what_was_decoded(clips: Path, pack: Path) -> None:
    for name, groups, count in (("train", "8-25", 6), ("test", "4-7", 4)):
        packed, decoded = train_clips.unpack(pack, name), train_clips.decode(clips, groups)
        assert packed.x.shape == decoded.x.shape == (count, 24, 84, 112, 3)  # the broken one is left out
        assert packed.y.tolist() == decoded.y.tolist()
        assert packed.classes == decoded.classes == ("dark", "light")
        assert (packed.x.float() - decoded.x.float()).abs().mean() < 6


def test_what_is_tested_is_what_a_loader_gives(clips: Path) -> None:
    ours = train_clips.plain(train_clips.decode(clips, "4-7").x)
    batch = load(clips, groups="4-7", frames=CLIP_FRAMES, size=CLIP_SIZE)
    theirs = (batch.x - CLIP_MEAN[0]) / CLIP_STD[0]
    assert ours.shape == theirs.shape == (4, 3, 16, 72, 96)
    # frames are picked from 24 in place of 30, so only their mean light can be compared
    assert torch.allclose(ours.mean((1, 2, 3, 4)), theirs.mean((1, 2, 3, 4)), atol=0.15)


def test_augmentation_moves_every_clip_its_own_way_and_keeps_time_in_order() -> None:
    ramp = torch.arange(24, dtype=torch.uint8).mul(10).view(1, 24, 1, 1, 1).expand(6, 24, 84, 112, 3)
    seen = [train_clips.augmented(ramp, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert seen[0].shape == (6, 3, 16, 72, 96)
    light = seen[0].flatten(3).median(3).values.mean(1)  # (b, t)
    assert bool((light.diff(dim=1) >= -1e-4).all())
    assert float(light.std(0).mean()) > 0.05


@pytest.mark.slow
def test_training_learns(pack: Path, tmp_path: Path) -> None:
    assert train_clips.run(options(tmp_path, packed=pack, steps=60)) == {"tsn": 1.0}


@pytest.mark.slow
def test_training_repeats(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = {"a": 0, "b": 0, "c": 1}
    runs = [train_clips.run(options(tmp_path / name, packed=pack, seed=seed, steps=1)) for name, seed in seeds.items()]
    assert runs[0] == runs[1]
    assert "1 steps" in capsys.readouterr().out
    paths = [tmp_path / run / "tsn.safetensors" for run in seeds]
    first, again, other = (load_file(path) for path in paths)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])
    assert paths[0].stat().st_size < 4e6
    with safe_open(paths[0], "pt") as file:
        assert (file.metadata()["net"], file.metadata()["classes"]) == ("tsn", "dark,light")
    batch = load(pack.parent.parent, groups="8-25", frames=16, size=(72, 96))
    assert clip_victim(paths[0])(batch.x).shape == (6, 2)
