"""Files that are there whole or not at all."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlab.errors import InputError
from rlab.runs import files


def arrays(n: int, patches: int, seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "assignment": torch.randint(0, 9, (n, patches), generator=draw).to(torch.uint8),
        "original": torch.rand(n, 2, 5, generator=draw),
        "perturbed": torch.rand(n, 2, 5, generator=draw),
    }


def test_arrays_come_back_with_their_setting(tmp_path: Path) -> None:
    made = arrays(3, 7)
    files.write_arrays(tmp_path / "a", made, '{"seed": 1}')
    found, setting = files.read_arrays(tmp_path / "a")
    assert setting == '{"seed": 1}'
    assert found.keys() == made.keys()
    assert all(torch.equal(found[name], made[name]) for name in made)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 9))
def test_parts_become_one_file(tmp_path: Path, lengths: list[int], patches: int) -> None:
    """Odd numbers of bytes included: what follows them must still be readable."""
    parts = [arrays(n, patches, seed) for seed, n in enumerate(lengths)]
    paths = [tmp_path / f"{i}.safetensors" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        files.write_arrays(path, part, "the setting")
    files.join_arrays(paths, tmp_path / "whole")
    found, setting = files.read_arrays(tmp_path / "whole")
    assert setting == "the setting"
    for name in parts[0]:
        assert torch.equal(found[name], torch.cat([part[name] for part in parts]))


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "n": 1, "far": math.inf, "scores": [0.25, 0.75]},
        {"id": "ü", "n": -2, "far": 0.1, "scores": [1.0, 0.0]},
    ]
    files.write_rows(tmp_path / "r", rows, "{}")
    assert files.read_rows(tmp_path / "r") == rows
    files.write_rows(tmp_path / "r", [{"far": math.nan}], "{}")
    assert math.isnan(files.read_rows(tmp_path / "r")[0]["far"])


def test_a_file_half_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        files.write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense", b"\x80\x04."])
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    for read in (files.read_arrays, files.read_rows):
        with pytest.raises(InputError, match=r"cannot read .*bad"):
            read(tmp_path / "bad")
        with pytest.raises(InputError, match="cannot read"):
            read(tmp_path / "missing")
