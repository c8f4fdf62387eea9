from typing import Any

import av
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rlab
from rlab.data.clips import frame_indices, read_clip
from rlab.data.load import load
from rlab.errors import DataError, InputError, OptionError
from rlab.runs.understood import Understood
from tests.data.clip_files import write_counted as write


def indices(x):
    """(c, t, h, w) in [0, 1] -> the frame each picture was."""
    return (x.mean((0, 2, 3)) * 25.5).round().int().tolist()


@given(st.integers(1, 300), st.integers(1, 64), st.sampled_from(["uniform", "dense"]))
def test_frame_indices(count, frames, sampling):
    chosen = frame_indices(count, frames, sampling)
    assert len(chosen) == frames
    assert (np.diff(chosen) >= 0).all()
    assert chosen[0] >= 0
    assert chosen[-1] < count
    if count >= frames:
        assert len(set(chosen.tolist())) == frames
    if sampling == "dense" and count >= frames:
        assert chosen[-1] - chosen[0] == frames - 1
        assert abs(chosen[0] - (count - 1 - chosen[-1])) <= 1
    if sampling == "uniform":
        assert np.diff(chosen).max(initial=0) - np.diff(chosen).min(initial=count) <= 1
        if count < frames:
            assert set(chosen.tolist()) == set(range(count))


def test_frame_indices_by_hand():
    assert frame_indices(20, 4, "uniform").tolist() == [2, 7, 12, 17]
    assert frame_indices(2, 4, "uniform").tolist() == [0, 0, 1, 1]
    assert frame_indices(20, 4, "dense").tolist() == [8, 9, 10, 11]
    assert frame_indices(2, 4, "dense").tolist() == [0, 1, 1, 1]


def test_class_folders(tmp_path):
    for name in ("run/a.mp4", "jump/b.avi", ".trash/c.mp4", "__MACOSX/d.avi"):
        write(tmp_path / name)
    batch = load(tmp_path, frames=4)
    assert batch.x.shape == (2, 3, 4, 32, 48)
    assert (batch.ids, batch.y.tolist(), batch.classes) == (("jump/b.avi", "run/a.mp4"), [0, 1], ("jump", "run"))
    assert indices(batch.x[0]) == indices(batch.x[1]) == [2, 7, 12, 17]
    assert indices(load(tmp_path, frames=3, sampling="dense").x[1]) == [8, 9, 10]
    assert (batch.kind, batch.bounds) == ("video", (0.0, 1.0))


def test_flat_folder_with_a_table(tmp_path):
    for name in ("v_1.mp4", "v_2.mp4"):
        write(tmp_path / name, frames=3)
    (tmp_path / "labels.csv").write_text("clip,label,group\nv_1.mp4,Surfing,4\nv_2.mp4,Archery,4\n")
    batch = load(tmp_path, frames=2, size=16)
    assert (batch.y.tolist(), batch.classes, batch.size) == ([1, 0], ("Archery", "Surfing"), (2, 16, 16))


def test_short_clips_repeat_frames(tmp_path):
    write(tmp_path / "k" / "a.mp4", frames=3)
    assert indices(load(tmp_path, frames=6).x[0]) == [0, 0, 1, 1, 2, 2]
    assert indices(load(tmp_path, frames=6, sampling="dense").x[0]) == [0, 1, 2, 2, 2, 2]
    assert load(tmp_path).x.shape[2] == 16


def test_frames_are_counted_if_the_container_does_not_declare_them(tmp_path):
    write(tmp_path / "a.mkv")
    assert read_clip(tmp_path / "a.mkv", 4).mean((0, 2, 3)) == pytest.approx([20, 70, 120, 170], abs=3)


def test_a_clip_that_declares_more_frames_than_it_holds(tmp_path):
    write(tmp_path / "a.avi")
    data = (tmp_path / "a.avi").read_bytes()
    (tmp_path / "a.avi").write_bytes(data[: data.index(b"movi") + (data.index(b"idx1") - data.index(b"movi")) // 2])
    with av.open(str(tmp_path / "a.avi")) as container:
        assert container.streams.video[0].frames == 20
    levels = read_clip(tmp_path / "a.avi", 4).mean((0, 2, 3))
    assert levels[0] < levels[1] < levels[2] < levels[3] < 120


UCF = {"run/v_run_g01_c01.avi", "run/v_run_g08_c01.avi", "dive/v_dive_g01_c01.avi", "dive/v_dive_g08_c01.avi"}


@pytest.mark.parametrize("place", ["clips", "clips/ucfTrainTestlist", "ucfTrainTestlist", "elsewhere"])
def test_ucf_splits(tmp_path, place):
    for name in UCF:
        write(tmp_path / "clips" / name, frames=4)
    lists = tmp_path / place
    lists.mkdir(exist_ok=True)
    (lists / "classInd.txt").write_text("1 run\n2 dive\n3 box\n")
    (lists / "testlist01.txt").write_text("run/v_run_g01_c01.avi\ndive/v_dive_g01_c01.avi\nbox/v_box_g01_c01.avi\n")
    (lists / "trainlist01.txt").write_text("run/v_run_g08_c01.avi 1\ndive/v_dive_g08_c01.avi 2\n")
    options = {"splits": str(lists)} if place == "elsewhere" else {}
    test = load(tmp_path / "clips", split="test", frames=2, **options)
    assert test.ids == ("dive/v_dive_g01_c01.avi", "run/v_run_g01_c01.avi")
    assert (test.y.tolist(), test.classes) == ([1, 0], ("run", "dive", "box"))
    assert test.left_out == (("box/v_box_g01_c01", "is listed but there is no file"),)
    train = load(tmp_path / "clips", split="train", frames=2, **options)
    assert train.ids == ("dive/v_dive_g08_c01.avi", "run/v_run_g08_c01.avi")


def test_an_attack_on_the_layout_of_hmdb(tmp_path):
    """Names as HMDB-51 has them; a fold's lists name 1 (train), 2 (test) and 0 (neither), each line with a blank at its end."""
    clips = {
        "brush_hair": ("#20_Rhythm_clap_u_nm_np1_fr_goo_0", "April_09_brush_hair_u_nm_np1_ba_goo_0", "Sarah(1)_brush_hair_h_0"),
        "wave": ("20060723sfjff_wave_f_cm_np1_ba_med_0", "Veoh_Alpha&Dog_1_wave_u_nm_np1_fr_med_26", "girl_wave_h_cm_np1_ri_0"),
    }  # fmt: skip
    lists = tmp_path / "testTrainMulti_7030_splits"
    lists.mkdir()
    for label, names in clips.items():
        for name in names:
            write(tmp_path / "hmdb51" / label / f"{name}.avi", frames=4 if label == "wave" else 20)
        for fold in (1, 2, 3):
            codes = [1 + ((number + fold) % 3 == 0) for number in range(2)] + [0 if fold == 3 else 2]
            lines = [f"{name}.avi {code} \n" for name, code in zip(names, codes, strict=True)]
            (lists / f"{label}_test_split{fold}.txt").write_text("".join(lines))
    for fold in (1, 2, 3):
        train, test = (load(tmp_path / "hmdb51", split=split, fold=fold, frames=4) for split in ("train", "test"))
        assert not set(train.ids) & set(test.ids)
        assert len(train) + len(test) == (4 if fold == 3 else 6)
        assert train.classes == test.classes == ("brush_hair", "wave")
        assert all(name.startswith(test.classes[int(label)]) for name, label in zip(test.ids, test.y, strict=True))

    def dark(x):
        light = 8 * (x.mean((1, 2, 3, 4)) - 0.25)
        return np.stack([light, -light], 1)

    test = load(tmp_path / "hmdb51", split="test", fold=1, frames=4)
    result = rlab.attack(dark, test, palette=["dead_pixel"], patch=(1, 8, 8), budget=30)
    assert result.succeeded[test.y == 0].all()  # light clips, which dead pixels darken
    assert result.ids == test.ids


def test_one_bad_clip_is_skipped_and_listed(tmp_path):
    for name in ("run/a.mp4", "run/b.mp4", "sit/c.mp4"):
        write(tmp_path / name, frames=4)
    (tmp_path / "run" / "b.mp4").write_bytes(b"no video at all")
    batch = load(tmp_path, frames=2)
    assert (batch.ids, batch.y.tolist()) == (("run/a.mp4", "sit/c.mp4"), [0, 1])
    assert batch.left_out == (("run/b.mp4", "cannot be decoded: Invalid data found when processing input"),)


def test_a_limit_that_meets_bad_clips_says_so(tmp_path):
    for name in ("run/a.mp4", "run/b.mp4", "sit/c.mp4"):
        write(tmp_path / name, frames=4)
    for name in ("run/a.mp4", "run/b.mp4"):
        (tmp_path / name).write_bytes(b"no video at all")
    lines = Understood(load(tmp_path, frames=2, limit=2)).lines()
    assert "spread over 1 class (seed 0), but only 1 can be used" in lines["samples"]
    assert lines["left out"].startswith("1 × cannot be decoded")


def test_sound_alone_is_a_bad_clip(tmp_path):
    write(tmp_path / "run" / "a.mp4", frames=2)
    with av.open(str(tmp_path / "run" / "b.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    assert load(tmp_path, frames=2).left_out == (("run/b.mkv", "holds no video stream"),)


def test_a_size_makes_clips_alike(tmp_path):
    write(tmp_path / "run" / "a.mp4", frames=2)
    write(tmp_path / "run" / "b.mp4", frames=2, height=64)
    assert load(tmp_path, frames=2, size=(20, 30)).size == (2, 20, 30)


def test_frames_are_scaled_while_they_are_decoded(tmp_path):
    write(tmp_path / "a.mp4", frames=2)
    assert torch.from_numpy(read_clip(tmp_path / "a.mp4", 2, 16)).shape == (3, 2, 16, 16)


LISTS = {"testlist01.txt": "run/a.avi\n"}


@pytest.mark.parametrize(
    ("files", "options", "error", "sentence"),
    [
        ({"testlist01.txt": "box/v.avi\n"}, {"split": "test"}, DataError, "none of the 1 clips of split test are in"),
        ({**LISTS, "classInd.txt": "run\n"}, {"split": "test"}, DataError, "expected lines like '1 ApplyEyeMakeup'"),
        (LISTS, {"split": "test", "fold": 2}, DataError, "found no lists of split test 2: expected testlist02.txt"),
        (LISTS, {"split": "val"}, OptionError, "expected split train or test, got 'val'"),
        (
            {"run/a.avi": "", "run/c.avi": ""},
            {},
            DataError,
            "none of 2 samples can be read: run/a.avi cannot be decoded",
        ),
        ({}, {"frames": 2}, DataError, "expected samples of one size, .* 'run/c.avi', .* pass a size"),
    ],
)
def test_errors(tmp_path, files: dict[str, str], options: dict[str, Any], error: type[InputError], sentence: str):
    write(tmp_path / "run" / "a.avi", frames=2)
    write(tmp_path / "run" / "c.avi", frames=2, height=64)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=sentence):
        load(tmp_path, **options)
