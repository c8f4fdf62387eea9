"""Sentences about results made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlab.core.distances import measure
from rlab.data.batch import UNBOUNDED
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Setting, Status
from rlab.results.sample import Sample
from rlab.results.sentences import filter_words, sample_sentence

IMAGE = Setting(
    (8, 8), (1, 1), ("gaussian_blur@1", "illuminate+@0.2"), "untargeted", "auto", 50, (0.0, 1.0), 0, ("cat", "dog", "ship")
)  # fmt: skip
ECG = replace(
    IMAGE, size=(360,), patch=(36,), palette=("powerline_hum50@0.1mV", "muscle_noise@0.2"), bounds=UNBOUNDED,
    classes=("normal", "atrial premature", "ventricular"), unit="mV", rate=360.0,
)  # fmt: skip
CLIP = replace(IMAGE, size=(8, 4, 4), patch=(1, 2, 2), palette=("jpeg@40",), classes=("run", "jump"), rate=8.0)


def made(
    setting: Setting,
    patches: dict[int, tuple[int, float]],
    label: Any = 0,
    after: Any = 1,
    status: Status = Status.SUCCEEDED,
    channels: tuple[bool, ...] = (True,),
    before: Any = None,
    peaks: tuple[int, ...] = (),
) -> AttackResult:
    """One sample; `patches`: patch -> (entry, change of every value in it)."""
    grid = setting.grid
    entries, change = torch.zeros(1, len(grid), dtype=torch.uint8), torch.zeros(1, len(grid))
    for patch, (entry, size) in patches.items():
        entries[0, patch], change[0, patch] = entry, size
    x0 = torch.full((1, len(channels), *setting.size), 0.25)
    x = x0 + grid.spread(change) * torch.tensor(channels).view(1, -1, *(1,) * grid.rank)
    distances = measure(x0, x, entries, setting.bounds)
    won = status is Status.SUCCEEDED
    return AttackResult(
        setting, ("s",), torch.tensor([label]), (status,), torch.tensor([[7, 0, 1, 0]]),
        _scores(label if before is None else before), _scores(after), distances, distances, entries,
        HeldInputs(x0, x), torch.zeros(1),
        (((5, float(distances["l2"])),),) if won else (), (peaks,),
    )  # fmt: skip


def _scores(told: Any) -> Tensor:
    """Probabilities for a class, or for several labels."""
    if isinstance(told, list):
        return torch.tensor([[0.9 if on else 0.1 for on in told]])
    return torch.nn.functional.one_hot(torch.tensor([told]), 3) * 0.7 + 0.1


def said(*args: Any, **options: Any) -> str:
    return made(*args, **options)[0].sentence


def test_a_beat_is_described_relative_to_its_r_peak() -> None:
    """Patch 3 covers points 108 to 143 at 360 Hz."""
    before = said(ECG, {3: (1, 0.1)}, peaks=(180,))
    assert (
        before
        == "normal read as atrial premature after up to 0.1 mV of 50 Hz mains hum 103 to 200 ms before the R peak"
    )
    assert said(ECG, {3: (1, 0.1)}, peaks=(72,)).endswith("mains hum 100 to 197 ms after the R peak")
    assert said(ECG, {3: (1, 0.1)}, peaks=(120,)).endswith("over the R peak")
    assert said(ECG, {3: (1, 0.1)}, peaks=(30, 180, -5)).endswith("103 to 200 ms before the R peak at 0.50 s")
    assert said(ECG, {3: (1, 0.1)}, peaks=(-5,)).endswith("from 0.3 to 0.4 s")  # none within the window


def test_a_signal_names_the_group_of_leads() -> None:
    names, groups = ("I", "II", "V1", "V2", "V3"), (0, 0, 1, 1, 1)
    leads = replace(ECG, leads=names, channels=groups)
    assert said(leads, {13: (1, 0.1)}, channels=(True,) * 5).endswith("mains hum from 0.3 to 0.4 s in V1-V3")
    words = said(leads, {3: (1, 0.4), 13: (1, 0.1)}, channels=(True,) * 5)
    assert words.endswith("in 2 places, the strongest from 0.3 to 0.4 s in I, II")


def test_a_picture_names_its_channels() -> None:
    each = replace(IMAGE, channels=(0, 1, 1))
    assert "blur in 1 of 128 patches of channel 1;" in said(each, {0: (1, 0.1)}, channels=(True,) * 3)
    assert "patches of channels 1 and 2, 3;" in said(each, {0: (1, 0.1), 64: (1, 0.1)}, channels=(True,) * 3)


def test_a_signal_names_the_strongest_of_several_places() -> None:
    words = said(ECG, {0: (1, 0.1), 5: (2, 0.4), 6: (2, 0.4)})
    assert words.endswith(
        "up to 0.4 mV of muscle noise and 50 Hz mains hum in 2 places, the strongest from 0.5 to 0.7 s"
    )


@pytest.mark.parametrize(("size", "amount"), [(880, "880"), (1523, "1,523"), (0.1234, "0.12")])
def test_amounts_in_microvolt_have_no_exponent(size: float, amount: str) -> None:
    assert f"after up to {amount} uV of 50 Hz" in said(replace(ECG, unit="uV"), {3: (1, size)})


@pytest.mark.parametrize(
    ("channels", "leads", "end"),
    [
        ((True,), ("II",), "0.4 s"),
        ((False, True), ("I", "II"), "in lead II"),
        ((True, True), ("I", "II"), "in both leads"),
        ((True, False, True), (), "in leads 1 and 3"),
        ((True,) * 12, (), "in all 12 leads"),
        ((True,) * 5 + (False,), (), "in 5 of 6 leads"),
    ],
)
def test_leads(channels: tuple[bool, ...], leads: tuple[str, ...], end: str) -> None:
    assert said(replace(ECG, leads=leads), {3: (1, 0.1)}, channels=channels).endswith(end)


def test_units_of_signals() -> None:
    bare, bounded = replace(ECG, unit="", rate=None), replace(ECG, unit="", bounds=(-1.0, 1.0))
    assert said(bare, {3: (2, 0.1)}).endswith("a change of 0.1 by muscle noise from 108 to 144 of 360 points")
    assert "a change of 0.05 of the range by muscle noise" in said(bounded, {3: (2, 0.1)})
    assert said(bare, {3: (2, 0.1)}, peaks=(144,)).endswith("1 to 36 points before the R peak")


def test_images_give_patches_and_distance() -> None:
    words = said(IMAGE, {0: (1, 0.5), 1: (1, 0.5), 9: (2, 0.5)})
    assert words == "cat read as dog after blur and brightening in 3 of 64 patches; L2 0.866"
    sample = made(replace(IMAGE, distance="linf"), {0: (1, 0.5)})[0]
    assert "Linf" in sample.sentence
    assert str(sample) == f"s: {sample.sentence}"
    assert sample_sentence(sample, distance=False).endswith("patches")


def test_clips_give_the_frames() -> None:
    """Four patches per frame at eight frames per second."""
    words = said(CLIP, {8: (1, 0.5), 12: (1, 0.5)})
    assert words.startswith(
        "run read as jump after JPEG compression in 2 of 32 patches, frames 3 to 4 of 8 (0.25 to 0.50 s)"
    )
    assert "frame 3 of 8 (" in said(CLIP, {8: (1, 0.5)})
    assert "2 frames from 1 to 8 of 8;" in said(replace(CLIP, rate=None), {0: (1, 0.5), 28: (1, 0.5)})


@pytest.mark.parametrize(
    ("status", "options", "start"),
    [
        (Status.SPENT, {"after": 0}, "cat held: still read as cat within 7 queries"),
        (Status.SKIPPED, {"before": 2, "after": 2}, "cat was not attacked: read as ship untouched"),
        (Status.FAILED, {"after": 0}, "cat: the model answered NaN to a distorted input"),
        (Status.LOST, {"after": 0}, "cat: the model did not answer the last query"),
        (Status.UNVERIFIED, {}, "cat: flipped once, but not again from the stored input"),
    ],
)
def test_a_sample_that_did_not_flip_gives_the_reason(status: Status, options: dict[str, Any], start: str) -> None:
    words = said(IMAGE, {}, status=status, **options)
    assert words.startswith(start)
    assert " read as dog " not in words


def test_sentences_by_goal() -> None:
    aimed, below = replace(IMAGE, goal="targeted:1"), replace(IMAGE, goal="below:0.3")
    assert said(aimed, {0: (1, 0.5)}).startswith("cat read as dog, the target, after blur")
    assert said(aimed, {}, status=Status.SPENT, after=2).startswith("cat held: not read as dog, the target, within")
    assert said(aimed, {}, status=Status.SKIPPED, label=1).startswith("dog was not attacked: it is the target")
    assert said(below, {0: (1, 0.5)}).startswith("cat: its probability fell from 0.8 to 0.1 after blur")
    assert "reached untouched" in said(below, {}, status=Status.SKIPPED)


def test_missing_names_and_multiple_labels() -> None:
    assert said(replace(IMAGE, classes=()), {0: (1, 0.5)}).startswith("class 0 read as class 1 after")
    assert said(replace(IMAGE, classes=("cat",)), {0: (1, 0.5)}).startswith("cat read as class 1 after")
    several = replace(IMAGE, goal="multilabel")
    assert said(several, {0: (1, 0.5)}, label=[1, 0, 1], after=[1, 0, 0]).startswith("cat + ship read as cat after")
    assert said(several, {0: (1, 0.5)}, label=[1, 0, 0], after=[0, 0, 0]).startswith("cat read as nothing after")


def test_words_for_filters() -> None:
    assert filter_words("powerline_hum60@0.1#2") == "60 Hz mains hum"
    assert filter_words("my.module:lens_flare@2") == "lens flare"
    assert filter_words("channel_shift+-+@0.1") == "channel shift"


def test_a_run() -> None:
    flips = [made(IMAGE, {0: (1, 0.5)}), made(IMAGE, {1: (1, 0.5), 2: (2, 0.5)}), made(IMAGE, {3: (1, 0.5)}, after=2)]
    others = [made(IMAGE, {}, status=status) for status in (Status.SPENT, Status.SKIPPED, Status.FAILED)]
    words = AttackResult.join([*flips, *others]).sentence
    assert words.startswith("3 of 5 attacked samples flipped, at a median L2 of 0.5 and 1 of 64 patches; ")
    assert "; the search stopped at 7 of 50 queries; " in words
    assert "most often cat read as dog (2 of 3); blur made 83% of the squared change; on 1 the model failed" in words
    assert words.endswith("1 more was not attacked")
    assert "most often by" not in AttackResult.join([made(IMAGE, {0: (1, 0.5), 1: (2, 0.5)})]).sentence  # both as often
    assert "cat read" not in AttackResult.join([flips[0], flips[2]]).sentence  # no confusion occurs twice
    assert "cat read" not in AttackResult.join([*flips, flips[2]]).sentence  # a tie
    assert others[0].sentence == "None of 1 attacked sample flipped within 50 queries"
    assert "was attacked" in others[1].sentence
    assert math.isinf(others[0][0].distance)


def test_the_filter_that_made_the_change_is_named_in_any_order() -> None:
    """Every flip uses every filter, but one of them makes nearly all of the change."""
    setting = replace(IMAGE, palette=("gaussian_noise@0.1", "illuminate+@0.2", "dead_pixel@1", "gaussian_blur@1"))
    sizes = {1: 0.02, 2: 0.02, 3: 0.7, 4: 0.03}
    for order in ((1, 2, 3, 4), (3, 4, 1, 2)):
        palette = tuple(setting.palette[entry - 1] for entry in order)
        patches = {at: (at % 4 + 1, sizes[order[at % 4]]) for at in range(4)}
        result = made(replace(setting, palette=palette), patches)
        assert "; dead points made 100% of the squared change" in result.sentence
        assert " after dead points and 3 more in 4 of 64 patches" in result[0].sentence
        assert [look.name for look in dict.fromkeys(Sample.of(result, 0).looks.values())] == [
            "dead_pixel@1: 100% of the change", "3 others: 0%"
        ]  # fmt: skip
    even = made(setting, {0: (1, 0.3), 1: (2, 0.3), 2: (3, 0.32), 3: (4, 0.3)})
    assert "squared change" not in even.sentence
