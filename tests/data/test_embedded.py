import json
import math
from functools import cache
from importlib.resources import as_file, files

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier
from torch.nn.functional import interpolate

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.embedded import embedded
from rlab.data.load import DataOptions, load
from rlab.data.source import Source
from rlab.data.take import Take
from rlab.errors import OptionError
from rlab.victims.zoo import demo_victim

NAMES = ("digits", "ecg", "clips")


@cache
def some(name: str, split: str = "test") -> Batch:
    """Two hundred samples, simulated once for all tests."""
    return load(f"demo:{name}", split=split, limit=200)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_samples_every_time_whatever_the_limit(name):
    some, more = load(f"demo:{name}", limit=5, order="first"), embedded(name, take=Take(limit=12, order="first"))
    assert torch.equal(some.x, more.x[:5])
    assert torch.equal(some.y, more.y[:5])
    assert some.ids == more.ids[:5]
    other = load(f"demo:{name}", limit=5, shuffle=True, seed=3)
    assert other.ids != some.ids
    spread = load(f"demo:{name}", limit=2 * len(some.classes))
    assert spread.y.bincount().tolist() == [2] * len(some.classes)
    assert set(load(f"demo:{name}", limit=4).ids) < set(spread.ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_train_and_test_share_nothing(name):
    train, test = some(name, "train"), some(name)
    rows = {row.tobytes() for row in train.x.flatten(1).numpy()}
    shared = sum(row.tobytes() in rows for row in test.x.flatten(1).numpy())
    assert shared == 0
    assert set(test.y.tolist()) == set(range(len(test.classes)))


def test_digits_are_the_real_ones():
    test, train = load("demo:digits"), load("demo:digits", split="train")
    assert (len(test), len(train), test.x.shape[1:]) == (500, 1297, (1, 8, 8))
    assert len({*test.ids, *train.ids}) == 1797
    row, digits = int(test.ids[0].removeprefix("digit-")), load_digits()
    assert np.array_equal(test.x[0, 0].numpy() * 16, digits.images[row])
    assert test.y[0] == digits.target[row]


def test_simulated_beats():
    batch = load("demo:ecg", limit=300)
    assert batch.masks is not None
    assert batch.x.shape == (300, 2, 288)
    assert (batch.unit, batch.rate, batch.bounds) == ("mV", 360, UNBOUNDED)
    assert all(name.startswith("simulated-") for name in batch.ids)
    assert set(batch.masks.sum(1).tolist()) <= {36, 37}  # 100 ms at 360 Hz
    normal = batch.y == batch.classes.index("normal")
    at = batch.x[normal, 0].argmax(1)
    inside = batch.masks[normal][torch.arange(len(at)), at]
    assert inside.float().mean() > 0.98  # the mask covers the R peak


def test_no_single_value_separates_the_beats():
    train, test = load("demo:ecg", split="train", limit=1000), some("ecg")
    x, unseen = train.x.flatten(1).numpy(), test.x.flatten(1).numpy()

    def accuracy(column):
        tree = DecisionTreeClassifier(max_leaf_nodes=8, random_state=0).fit(x[:, [column]], train.y)
        return tree.score(unseen[:, [column]], test.y)

    assert max(accuracy(column) for column in range(0, x.shape[1], 4)) < 0.75  # values 11 ms apart


def test_clips_move_in_the_direction_of_their_label():
    batch = some("clips")
    assert batch.masks is not None
    assert batch.x.shape == (200, 3, 16, 32, 32)
    assert batch.masks.shape == (200, 16, 32, 32)
    angle = torch.arange(32) * (2 * math.pi / 32)
    for mask, label in zip(batch.masks, batch.y.tolist(), strict=True):
        axis = 1 if batch.classes[label] in ("up", "down") else 2
        seen = mask.any(3 - axis).float()
        phase = torch.atan2((seen * angle.sin()).sum(1), (seen * angle.cos()).sum(1))
        steps = torch.remainder(phase.diff() + math.pi, 2 * math.pi) - math.pi
        assert (steps.sum() > 0) == (batch.classes[label] in ("down", "right"))


def test_clips_have_a_plain_background():
    paper = some("clips").x[:40].flatten(2).sort(2).values[:, :, : 16 * 32 * 32 // 2]  # the digit is lighter
    assert float((paper.amax(2) - paper.amin(2)).max()) < 0.1


def test_a_clip_shows_a_real_digit_of_its_split():
    frames = some("clips").x[:12, :, 0]
    ink = (frames - frames.flatten(2).median(2).values[:, :, None, None]).mean(1)
    alike = torch.stack([_correlation(ink, side) for side in (14, 16, 18)]).amax(0)  # (clips, digits)
    assert float((alike.amax(1) / ink.flatten(1).norm(dim=1)).min()) > 0.9
    ours = {int(name.removeprefix("digit-")) for name in load("demo:digits").ids}
    assert sum(row in ours for row in alike.argmax(1).tolist()) >= 10  # 3 of 12 by chance


def _correlation(ink: torch.Tensor, side: int) -> torch.Tensor:
    """(n, 1797): the best match of each frame (n, 32, 32) with each digit of this size, at any place."""
    digits = interpolate(torch.from_numpy(load_digits().images).float()[:, None], size=side, mode="bilinear")[:, 0]
    small = torch.fft.rfft2(digits / digits.flatten(1).norm(dim=1)[:, None, None], s=(32, 32)).conj()
    return torch.stack([torch.fft.irfft2(one * small, s=(32, 32)).flatten(1).amax(1) for one in torch.fft.rfft2(ink)])


def test_one_frame_does_not_reveal_the_direction():
    masks = {}
    for split in ("train", "test"):
        batch = some("clips", split)
        assert batch.masks is not None
        masks[split] = (batch.masks[:, 0].float().flatten(1), batch.y)
    tree = DecisionTreeClassifier(max_depth=6, random_state=0).fit(*masks["train"])
    assert tree.score(*masks["test"]) < 0.4


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("digit", {}, "unknown demo data 'digit': expected one of digits, ecg, clips"),
        ("ecg", {"split": "val"}, "expected split train or test, got 'val'"),
        ("ecg", {"limit": 10**8}, "at most 100,000 samples"),
    ],
)
def test_errors(name, options, sentence):
    with pytest.raises(OptionError, match=sentence):
        load(f"demo:{name}", **options)


def test_samples_beyond_the_usual_number_are_made_when_they_are_read():
    """Ten thousand clips at once would take gigabytes."""
    source, alone = DataOptions(path="demo:clips", limit=10_000).open(), load("demo:clips", limit=3, order="first")
    assert isinstance(source, Source)
    assert len(source) == 10_000
    few = source[1:3]
    assert torch.equal(few.x, alone.x[1:])
    assert torch.equal(few.y, alone.y[1:])
    assert few.masks is not None
    assert alone.masks is not None
    assert torch.equal(few.masks, alone.masks[1:])
    assert few.ids == alone.ids[1:]


@pytest.mark.parametrize("name", ["digits", "ecg", pytest.param("clips", marks=pytest.mark.slow)])
def test_shipped_victims_reach_their_stated_accuracy(name):
    with as_file(files("rlab") / "assets" / f"demo_{name}.safetensors") as path, safe_open(path, "pt") as file:
        assert path.stat().st_size < 500_000
        about = {key: json.loads(text) for key, text in file.metadata().items()}
    batch = load(f"demo:{name}")
    assert (about["rank"], about["channels"], about["classes"]) == (batch.rank, batch.x.shape[1], len(batch.classes))
    hits = demo_victim(name)(batch.x).argmax(1) == batch.y
    assert float(hits.float().mean()) == pytest.approx(about["accuracy"], abs=0.006)
    assert about["accuracy"] >= {"digits": 0.97, "ecg": 0.93, "clips": 0.95}[name]


def test_the_shipped_clip_victim_is_right_on_a_few():
    few = some("clips")[:48]
    assert float((demo_victim("clips")(few.x).argmax(1) == few.y).float().mean()) >= 0.85
