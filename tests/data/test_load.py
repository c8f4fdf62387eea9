import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

import rlab
from rlab.data.load import DataOptions, find_loader, load
from rlab.errors import DataError, InputError, OptionError


def test_load_is_public():
    assert rlab.load("demo:digits", limit=3).x.shape == (3, 1, 8, 8)


def test_a_config_survives_json():
    config = DataOptions(path="demo:ecg", limit=4, shuffle=True, seed=9)
    again = DataOptions(**json.loads(config.model_dump_json(exclude_none=True)))
    assert again == config
    assert torch.equal(again.load().x, load("demo:ecg", limit=4, shuffle=True, seed=9).x)
    assert DataOptions(path="x", size=(3, 4), bounds=(0, 255)).size == (3, 4)
    with pytest.raises(ValidationError):
        config.limit = 5  # type: ignore[misc]


def test_folder_of_several_kinds(tmp_path):
    (tmp_path / "k").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "k" / "a.png")
    (tmp_path / "k" / "a.mp4").write_bytes(b"")
    with pytest.raises(DataError):
        load(tmp_path)
    assert load(tmp_path, kind="image").ids == ("k/a.png",)


def test_kind_settles_the_axes(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 8, 8), np.float32), y=np.zeros(2, int))
    assert load(tmp_path / "a.npz", kind="signal").x.shape == (2, 8, 8)
    assert load(tmp_path / "a.npz", kind="image").x.shape == (2, 1, 8, 8)
    assert load(tmp_path / "a.npz", rate=100.0).kind == "signal"


def test_every_loader_is_a_function_of_its_own(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 8), np.float32), y=np.array([0, 1]))
    source = DataOptions(path=str(tmp_path / "a.npz"), kind="signal")
    assert torch.equal(find_loader(source)(source).y, torch.tensor([0, 1]))


PICKLE = "is a pickle, .* save it as .npz with x and y"


@pytest.mark.parametrize(
    ("path", "options", "error", "sentence"),
    [
        ("demo:ecg", {"sise": 3}, InputError, r"no keyword 'sise'. Did you mean 'size'\?"),
        ("demo:ecg", {"limit": 0}, InputError, "'limit' .*is not valid: .* got 0"),
        ("demo:ecg", {"frames": 8}, OptionError, "the option 'frames' does not apply to 'demo:ecg'"),
        ("none.npz", {}, InputError, "there is no file or folder .*: check the path"),
        ("empty", {}, DataError, "holds no images, clips, sounds, volumes or WFDB records"),
        ("empty", {"kind": "video"}, DataError, "holds no video files: expected .avi, .mp4"),
        *[(name, {}, DataError, PICKLE) for name in ("a.pkl", "a.pt", "a.PTH", "a.joblib")],
        ("a.xyz", {}, DataError, "cannot tell what .* expected a folder or a file ending in .npz"),
    ],
)
def test_errors(tmp_path, monkeypatch, path: str, options: dict[str, Any], error: type[InputError], sentence: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    if path.startswith("a."):
        (tmp_path / path).write_bytes(b"")
    with pytest.raises(error, match=sentence):
        load(path, **options)
