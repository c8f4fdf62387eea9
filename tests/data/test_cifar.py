import pickle

import numpy as np
import pytest
import torch

from rlab.data import load
from rlab.data.cifar import CLASSES
from rlab.errors import InputError

DRAW = np.random.default_rng(0)


def write(path, labels):
    records = DRAW.integers(0, 256, (len(labels), 3073), np.uint8)
    records[:, 0] = labels
    records.tofile(path)
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)) / 255


def test_batches(tmp_path):
    second = write(tmp_path / "data_batch_2.bin", [4, 5])
    first = write(tmp_path / "data_batch_1.bin", [9])
    test = write(tmp_path / "test_batch.bin", [0, 7, 3])
    batch = load(tmp_path, split="train")
    assert torch.equal(batch.x, torch.cat([first, second]))
    assert (batch.y.tolist(), batch.classes) == ([9, 4, 5], CLASSES)
    assert batch.ids == ("data_batch_1:00000", "data_batch_2:00000", "data_batch_2:00001")
    assert torch.equal(load(tmp_path, split="test", limit=2).x, test[:2])
    assert torch.equal(load(tmp_path / "test_batch.bin").x, test)
    assert len(load(tmp_path)) == 6
    with pytest.raises(InputError, match=r"expected split train or test, got 'val'"):
        load(tmp_path, split="val")


def test_a_split_that_is_not_there(tmp_path):
    write(tmp_path / "test_batch.bin", [1])
    with pytest.raises(InputError, match=r"holds no data_batch"):
        load(tmp_path, split="train")


def test_one_file_has_no_splits(tmp_path):
    write(tmp_path / "test_batch.bin", [1])
    with pytest.raises(InputError, match=r"is one file: split is for a folder"):
        load(tmp_path / "test_batch.bin", split="test")


def test_incomplete_and_foreign_files(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(bytes(3000))
    with pytest.raises(InputError, match=r"records of 3073 bytes in 'test_batch.bin', got 3000 bytes"):
        load(tmp_path)
    write(tmp_path / "test_batch.bin", [1, 77])
    with pytest.raises(InputError, match=r"expected labels in 0\.\.9 in 'test_batch.bin', got 77"):
        load(tmp_path)


def test_pickled_version_is_refused_with_the_way_around(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": [1]}))
    for path in (tmp_path, tmp_path / "data_batch_1"):
        with pytest.raises(InputError, match=r"is a pickle, .* get the binary version"):
            load(path)
