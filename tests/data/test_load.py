import json

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

import rlab
from rlab.data import DataOptions, load
from rlab.data.load import find_loader
from rlab.errors import InputError


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


def test_unknown_and_wrong_options():
    with pytest.raises(InputError, match=r"unknown key 'sise' .* Did you mean 'size'\? The keys there are path, kind"):
        load("demo:ecg", sise=3)
    with pytest.raises(InputError, match=r"'limit' .*is not valid: .* got 0"):
        load("demo:ecg", limit=0)
    with pytest.raises(InputError, match=r"the option 'frames' is not for 'demo:ecg': its options are split"):
        load("demo:ecg", frames=8)


def test_missing_path(tmp_path):
    with pytest.raises(InputError, match=r"there is no file or folder .*: check the path"):
        load(tmp_path / "none.npz")


def test_empty_folder(tmp_path):
    with pytest.raises(InputError, match=r"holds no images, clips, WFDB records or CIFAR-10 batches"):
        load(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds no video files: expected .avi, .mp4"):
        load(tmp_path, kind="video")


def test_folder_of_several_kinds(tmp_path):
    (tmp_path / "k").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "k" / "a.png")
    (tmp_path / "k" / "a.mp4").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds image and video files: pass kind, one of image, video"):
        load(tmp_path)
    assert load(tmp_path, kind="image").ids == ("k/a.png",)


@pytest.mark.parametrize("name", ["a.pkl", "a.pt", "a.PTH", "a.joblib"])
def test_pickles_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"is a pickle, .* save it as .npz with x and y"):
        load(tmp_path / name)


def test_unknown_ending(tmp_path):
    (tmp_path / "a.xyz").write_bytes(b"")
    with pytest.raises(InputError, match=r"cannot tell what .* expected a folder or a file ending in .npz"):
        load(tmp_path / "a.xyz")


def test_kind_settles_the_axes(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 8, 8), np.float32), y=np.zeros(2, int))
    assert load(tmp_path / "a.npz").kind == "signal"
    assert load(tmp_path / "a.npz", kind="image").x.shape == (2, 1, 8, 8)


def test_every_loader_is_a_function_of_its_own(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 8), np.float32), y=np.array([0, 1]))
    source = DataOptions(path=str(tmp_path / "a.npz"))
    assert torch.equal(find_loader(source.path)(source).y, torch.tensor([0, 1]))
