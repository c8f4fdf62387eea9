"""Clips on the command line: options of the data, bad clips named, moving pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.command import rlab_command

MODEL = """
import torch
from torch import nn

class Light(nn.Module):
    def forward(self, x):
        level = x.mean((1, 2, 3, 4))
        return torch.stack([0.5 - level, level - 0.5], 1) * 20

def light():
    return Light()
"""


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_light.py").write_text(MODEL)
    for group in (3, 4, 5):
        for label, level in (("dark", 120), ("light", 140)):
            _write(tmp_path / "clips" / label / f"v_{label}_g0{group}_c01.mp4", level)
    (tmp_path / "clips" / "dark" / "v_dark_g05_c01.mp4").write_bytes(b"broken")
    return tmp_path / "clips"


def _write(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for _ in range(10):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((32, 48, 3), level, np.uint8), "rgb24")))
        container.mux(stream.encode())


def test_an_attack_on_clips_end_to_end(clips: Path) -> None:
    said = rlab_command(
        *("attack", "my_light:light", clips, "-D", "size=[16,24]", "-D", "groups=4-5", "-D", "frames=4"),
        *("--palette", "dead_pixel gaussian_noise", "--budget", 80, "--pictures", 1, "--out", "run"),
    )
    assert said.code == 0, said.err
    assert "3 clips of 4 frames of 16 x 24 pixels, 3 channels" in said.out
    assert "v_dark_g05_c01.mp4" in said.out  # left out, and named
    assert [path.suffix for path in sorted(Path("run/pictures").iterdir())] == [".png", ".png"]
    shown = rlab_command("show", "run")
    assert shown.code == 0, shown.err
    (in_words,), (in_figures,) = (
        re.findall(rf"{before} (\d[.\de-]*)", shown.out) for before in ("MAP of", "MAP in the end +│ +")
    )
    assert float(in_words) == pytest.approx(float(in_figures), rel=0.01)  # one unit everywhere
    assert "of 255" not in shown.out


def test_bad_groups_end_with_a_sentence(clips: Path) -> None:
    said = rlab_command("attack", "my_light:light", clips, "-D", "groups=later")
    assert said.code == 2
    assert "expected groups like 4-7 or 4,6,8-25, got 'later'" in said.err
