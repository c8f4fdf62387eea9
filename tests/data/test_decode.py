"""Decoding of clips with uneven frame rates, rotation and damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlab.data import clips as decode
from rlab.data.clips import frame_indices, pick, read_clip
from rlab.data.load import load
from rlab.data.source import Unreadable
from rlab.data.take import parse_ranges
from rlab.errors import OptionError
from tests.data.clip_files import write


def levels(clip: np.ndarray) -> list[int]:
    """(c, t, h, w) uint8 -> the grey of each frame, to the nearest ten."""
    return [round(float(value), -1) for value in clip.mean((0, 2, 3))]  # type: ignore[misc]


def test_a_variable_frame_rate_is_sampled_in_time(tmp_path: Path) -> None:
    even = write(tmp_path / "a.mp4", [10, 20, 30, 40, 200, 210], [0, 10, 20, 30, 40, 50])
    assert levels(read_clip(even, 4)) == [10, 30, 40, 210]
    uneven = write(tmp_path / "b.mp4", [10, 20, 30, 40, 200, 210], [0, 10, 20, 30, 100, 200])
    # the last frame stays for the usual 0.1 s: of 2.1 s the instants 0.26, 0.78, 1.31 and 1.83
    assert levels(read_clip(uneven, 4)) == [30, 40, 200, 200]
    assert levels(read_clip(uneven, 4, sampling="dense")) == [20, 30, 40, 200]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 5000))
def test_an_even_frame_rate_is_sampled_by_count(count: int, frames: int, gap: int) -> None:
    times = 17 + gap * np.arange(count)
    assert pick(times, frames, "uniform").tolist() == frame_indices(count, frames, "uniform").tolist()


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60), st.integers(1, 40))
def test_each_chosen_frame_is_visible_at_its_instant(gaps: list[int], frames: int) -> None:
    times = np.cumsum([0, *gaps])
    chosen = pick(times, frames, "uniform")
    assert len(chosen) == frames
    assert (np.diff(chosen) >= 0).all()
    assert 0 <= chosen[0] <= chosen[-1] < len(times)
    if max(gaps) > decode.UNEVEN * np.median(gaps):
        length = times[-1] + int(np.median(gaps))
        instants = [(2 * k + 1) * length // (2 * frames) for k in range(frames)]
        assert chosen.tolist() == [max(i for i, at in enumerate(times) if at <= now) for now in instants]


def test_only_the_chosen_frames_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.mp4", [10] * 120)
    kept: list[int] = []
    plain = decode.upright
    monkeypatch.setattr(decode, "upright", lambda *given: kept.append(1) or plain(*given))  # type: ignore[func-returns-value]
    read_clip(path, 5)
    assert len(kept) == 5


def turned(path: Path, matrix: list[int]) -> Path:
    """Writes a rotation into the track header, as phones do: a, b, c, d of the matrix."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44
    whole = [matrix[0], matrix[1], 0, matrix[2], matrix[3], 0, 0, 0]
    data[at : at + 32] = b"".join((value * 65536).to_bytes(4, "big", signed=True) for value in whole)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("matrix", "turns"), [([0, 1, -1, 0], 3), ([-1, 0, 0, -1], 2), ([0, -1, 1, 0], 1), ([1, 0, 0, 1], 0)]
)
def test_rotated_clips_stand_upright(tmp_path: Path, matrix: list[int], turns: int) -> None:
    path = tmp_path / "a.mp4"
    picture = np.zeros((32, 48, 3), np.uint8)
    picture[:16, :24], picture[:16, 24:], picture[16:, :24] = 60, 120, 180  # and black below on the right
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"crf": "4"})
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    clip = read_clip(turned(path, matrix), 2)
    expected = np.rot90(picture, turns)  # counter-clockwise
    assert clip.shape == (3, 2, *expected.shape[:2])
    inner = np.abs(clip[:, 0].transpose(1, 2, 0).astype(int) - expected)[2:-2, 2:-2]
    assert np.median(inner) <= 3
    assert (inner > 30).mean() < 0.1


def test_grey_clips_have_three_equal_channels(tmp_path: Path) -> None:
    clip = read_clip(write(tmp_path / "a.mkv", [40, 80], format="gray", codec="ffv1"), 2)
    assert clip.shape == (3, 2, 32, 48)
    assert np.array_equal(clip[0], clip[1])
    assert np.array_equal(clip[0], clip[2])
    assert clip.mean((0, 2, 3)) == pytest.approx([40, 80], abs=2)


def test_files_without_frames_are_bad_clips(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        container.start_encoding()
    with pytest.raises(Unreadable):
        read_clip(path, 2)
    (tmp_path / "b.mp4").write_bytes(b"")
    with pytest.raises(Unreadable):
        read_clip(tmp_path / "b.mp4", 2)


def test_damage_in_the_middle_never_raises_anything_else(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", list(range(0, 200, 5)), key_every=10)
    data = path.read_bytes()
    draw = np.random.default_rng(0)
    for trial in range(12):
        broken = bytearray(data)
        start = int(draw.integers(40, len(data) - 40))
        broken[start : start + 24] = draw.bytes(24)
        path.write_bytes(bytes(broken))
        try:
            assert read_clip(path, 4).shape[:2] == (3, 4), trial
        except Unreadable:
            continue


def test_frames_that_change_size_are_a_bad_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run" / "a.mp4", [10, 20])
    pictures = {0: np.zeros((3, 4, 4), np.uint8), 1: np.zeros((3, 4, 6), np.uint8)}
    monkeypatch.setattr(decode, "_in_turn", lambda *given: (pictures, 2))
    with pytest.raises(Unreadable):
        read_clip(path, 2)


def folder(root: Path) -> Path:
    """Six clips, the second and third broken, in groups 4 to 9."""
    for number in range(6):
        write(root / f"v_Run_g0{number + 4}_c01.mp4", [10 * number, 20 + 10 * number])
    for number in (1, 2):
        (root / f"v_Run_g0{number + 4}_c01.mp4").write_bytes(b"broken")
    rows = "".join(f"v_Run_g0{number + 4}_c01.mp4,{'ab'[number % 2]},{number + 4}\n" for number in range(6))
    (root / "labels.csv").write_text("clip,label,group\n" + rows)
    return root


def test_clips_are_decoded_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path)
    source = load(root, frames=2, stream=True)
    assert (len(source), source.classes, source.y.tolist()) == (6, ("a", "b"), [0, 1, 0, 1, 0, 1])
    read: list[str] = []
    plain = read_clip
    monkeypatch.setattr("rlab.data.clips.read_clip", lambda path, *rest: read.append(path.name) or plain(path, *rest))  # type: ignore[func-returns-value]
    first = source[0:1]
    assert set(read) == {first.ids[0]}
    rest, whole = source[1:6], load(root, frames=2)
    assert (*first.ids, *rest.ids) == whole.ids
    assert [*first.y.tolist(), *rest.y.tolist()] == whole.y.tolist() == [0, 1, 0, 1]
    assert first.left_out == ()
    assert rest.left_out == whole.left_out
    assert [name for name, _ in whole.left_out] == ["v_Run_g05_c01.mp4", "v_Run_g06_c01.mp4"]
    with pytest.raises(OptionError):
        load(root, frames=0)


@pytest.mark.parametrize("table", [True, False])
def test_groups(tmp_path: Path, table: bool) -> None:
    root = folder(tmp_path)
    options: dict[str, Any] = {"frames": 2}
    if not table:  # then the names give the groups
        lines = (root / "labels.csv").read_text().splitlines()
        (root / "labels.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
    batch = load(root, groups="4,8-9", **options)
    assert batch.ids == ("v_Run_g04_c01.mp4", "v_Run_g08_c01.mp4", "v_Run_g09_c01.mp4")
    assert (batch.y.tolist(), batch.classes) == ([0, 0, 1], ("a", "b"))
    assert load(root, groups=8, **options).ids == ("v_Run_g08_c01.mp4",)
    assert load(root, groups="7-99", limit=1, order="first", **options).ids == ("v_Run_g07_c01.mp4",)
    with pytest.raises(OptionError):
        load(root, groups="20-25", **options)


def test_parse_groups() -> None:
    assert parse_ranges("4-6, 9", "groups") == {4, 5, 6, 9}


@pytest.mark.parametrize("text", ["", "a", "7-4", "4-", "1,,2"])
def test_invalid_groups(text: str) -> None:
    with pytest.raises(OptionError, match="expected groups like 4-7"):
        parse_ranges(text, "groups like 4-7")


def test_clips_without_groups(tmp_path: Path) -> None:
    write(tmp_path / "run" / "a.mp4", [10])
    with pytest.raises(OptionError):
        load(tmp_path, groups="4-7")
