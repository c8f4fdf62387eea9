"""Arrays and signals in text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlab.core import defaults
from rlab.data.arrays import channels_first
from rlab.data.batch import UNBOUNDED
from rlab.data.load import load
from rlab.errors import DataError, OptionError

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (6, 5, 4, 3), np.uint8)
Y = np.array([3, 1, 2, 0, 1, 3])


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_images_in_bytes_become_channels_first_in_the_unit_range(tmp_path):
    batch = load(save(tmp_path / "a.npz", x=IMAGES, y=Y), limit=4, order="first")
    assert torch.equal(batch.x, torch.from_numpy(np.moveaxis(IMAGES[:4], -1, 1).astype(np.float32) / 255))
    assert (batch.y.tolist(), batch.ids, batch.bounds) == ([3, 1, 2, 0], ("0", "1", "2", "3"), (0.0, 1.0))


def test_bytes_are_scaled_to_the_bounds_and_rows_of_labels_kept(tmp_path):
    path = save(tmp_path / "a.npz", x=IMAGES, y=Y)
    raw = torch.from_numpy(np.moveaxis(IMAGES, -1, 1).astype(np.float32))
    assert torch.equal(load(path, bounds=(0, 255)).x, raw)
    assert torch.allclose(load(path, bounds=(-1, 1)).x, raw / 127.5 - 1, atol=1e-6)
    several = np.array([[1, 1, 0]] * 6)
    assert load(save(path, x=IMAGES, y=several)).y.tolist() == several.tolist()


def test_ids_masks_and_classes_are_loaded(tmp_path):
    x = DRAW.random((3, 2, 7)).astype(np.float32)
    masks = DRAW.random((3, 7)) > 0.5
    names = np.array(["zebra", "ant"])
    path = save(
        tmp_path / "a.npz", X=x, labels=np.array([1, 0, 1]), ids=np.array(["p", "q", "r"]), masks=masks, classes=names
    )
    batch = load(path, shuffle=True, seed=1, rate=250)
    assert batch.masks is not None
    order = [("p", "q", "r").index(one) for one in batch.ids]
    assert sorted(order) == [0, 1, 2]
    assert torch.equal(batch.x, torch.from_numpy(x[order]))
    assert torch.equal(batch.masks, torch.from_numpy(masks[order]))
    assert batch.y.tolist() == [[1, 0, 1][i] for i in order]
    assert (batch.classes, batch.rate, batch.bounds) == (("zebra", "ant"), 250, UNBOUNDED)


def test_test_arrays_before_train_arrays(tmp_path):
    x = DRAW.random((4, 9))
    path = save(tmp_path / "a.npz", x_train=x, y_train=np.zeros(4), x_test=x[:2] + 1, y_test=np.ones(2))
    assert load(path, kind="signal").y.tolist() == [1, 1]
    assert load(path, kind="signal", split="train").y.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "result"),
    [
        ((2, 50), "f4", None, (2, 1, 50)),
        ((2, 12, 50), "f4", None, (2, 12, 50)),
        ((2, 28, 28), "u1", None, (2, 1, 28, 28)),
        ((2, 28, 28), "f4", "image", (2, 1, 28, 28)),
        ((2, 28, 28), "u1", "signal", (2, 28, 28)),
        ((2, 8, 9, 3), "f4", None, (2, 3, 8, 9)),
        ((2, 3, 8, 9), "f4", None, (2, 3, 8, 9)),
        ((2, 3, 4, 4), "f4", None, (2, 3, 4, 4)),
        ((2, 8, 16, 16), "f4", "video", (2, 1, 8, 16, 16)),
        ((2, 8, 16, 16, 3), "f4", None, (2, 3, 8, 16, 16)),
        ((2, 3, 8, 16, 16), "f4", None, (2, 3, 8, 16, 16)),
    ],
)
def test_axes(shape, dtype, kind, result):
    assert channels_first(np.zeros(shape, dtype), kind).shape == result


@pytest.mark.parametrize("shape", [(2, 4, 16, 3), (2, 4, 8, 9, 3), (2, 3, 8, 3), (2, 1, 5, 1)])
def test_two_axes_that_could_hold_the_channels_need_a_layout(shape):
    data = (np.zeros(shape), Y[:2])
    with pytest.raises(DataError, match=r"layout='channels_first'.*-D layout=channels_last"):
        load(data)
    assert load(data, layout="channels_first").shape == shape[1:]
    assert load(data, layout="channels_last").shape == (shape[-1], *shape[1:-1])


def test_masked_values_are_refused():
    x, y = np.ma.masked_greater(np.ones((2, 3, 8, 8)), 5.0), np.ma.array(Y[:2], mask=[True, False])
    assert len(load((x, Y[:2]))) == 2  # nothing is masked
    x[0, 0, 0, 0] = np.ma.masked
    for data in ((x, Y[:2]), (np.ones((2, 3, 8, 8)), y)):
        with pytest.raises(DataError, match=r"got 1 of \d+"):
            load(data)


@pytest.mark.parametrize("how", [{"kind": "signal"}, {"rate": 50}, {"bounds": (0, 1)}])
def test_rows_of_a_table_or_signals(tmp_path, how):
    data = (np.zeros((6, 30)), Y)
    np.savez(tmp_path / "t.npz", x=data[0], y=Y)
    for given in (data, tmp_path / "t.npz"):
        with pytest.raises(DataError, match=r"\(6, 30\) may hold rows of a table.*bounds=\[0,1\]"):
            load(given)
        batch = load(given, **how)
        assert batch.shape == (1, 30)
    assert defaults.palette(batch).count("baseline_wander") == ("bounds" not in how)


def test_a_rate_in_python_needs_the_time_last():
    with pytest.raises(DataError, match="50 channels of 12 values: swap the last two axes"):
        load((np.zeros((6, 50, 12)), Y), rate=100)
    assert load((np.zeros((6, 50, 12)), Y), rate=100, kind="signal").shape == (50, 12)


def test_npy_with_labels_beside(tmp_path):
    x = DRAW.normal(size=(3, 20)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "y.csv").write_text("up\ndown\nup\n")
    batch = load(tmp_path / "x.npy", labels=str(tmp_path / "y.csv"), kind="signal")
    assert torch.equal(batch.x, torch.from_numpy(x)[:, None])
    assert (batch.y.tolist(), batch.classes, batch.bounds) == ([1, 0, 1], ("down", "up"), UNBOUNDED)


X = np.array([[0.5, -1.25, 3.0, 0.1], [2.5, 4.0, -0.75, 1.7]], np.float32)
CELLS = [[str(v) for v in row] for row in X]


def table(rows, header=None, between=","):
    return "\n".join(between.join(row) for row in ([header] if header else []) + rows)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (table([[*CELLS[0], "1"], [*CELLS[1], "0"]]), {}),
        (table([[*CELLS[0], "1.000e+00"], [*CELLS[1], "0.000e+00"]]), {}),
        (table([["1", *CELLS[0]], ["0", *CELLS[1]]], between="\t"), {}),
        (table([["1", *CELLS[0]], ["0", *CELLS[1]]]), {"label_column": "0"}),
        (table([[*CELLS[0], "1"], [*CELLS[1], "0"]]), {"label_column": "-1"}),
        (table([[*CELLS[0], "1"], [*CELLS[1], "0"]], ["0", "1", "2", "3", "label"], ";"), {}),
        (table([["1", *CELLS[0]], ["0", *CELLS[1]]], ["beat", "a", "b", "c", "d"]), {"label_column": "beat"}),
        (table([["1", *CELLS[0]], ["0", *CELLS[1]]], ["beat", "a", "b", "c", "d"]), {}),
    ],
)
def test_label_column_first_last_or_named(tmp_path, text, options):
    (tmp_path / "x.csv").write_text(text)
    batch = load(tmp_path / "x.csv", rate=125, **options)
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])
    assert (batch.y.tolist(), batch.bounds, batch.rate, batch.ids) == ([1, 0], UNBOUNDED, 125, ("0", "1"))


def test_names_and_ids_in_a_table(tmp_path):
    rows = [["p1", *CELLS[0], "sick"], ["p2", *CELLS[1], "fine"]]
    (tmp_path / "x.csv").write_text(table(rows, ["id", "a", "b", "c", "d", "label"]))
    with pytest.raises(DataError, match=r"rows of a table or signals.* -D rate=100 or -D kind=signal"):
        load(tmp_path / "x.csv")
    assert load(tmp_path / "x.csv", bounds=(-5, 5)).bounds == (-5, 5)
    batch = load(tmp_path / "x.csv", kind="signal")
    assert (batch.ids, batch.y.tolist(), batch.classes) == (("p1", "p2"), [1, 0], ("fine", "sick"))
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])


@pytest.mark.parametrize("header", [["", "a", "b", "c", "d", "label"], ["", "0", "1", "2", "3", "label"]])
def test_the_index_of_pandas_names_the_samples(tmp_path, header):
    rows = [["7", *CELLS[0], "1"], ["9", *CELLS[1], "0"]]
    (tmp_path / "x.csv").write_text(table(rows, header))
    batch = load(tmp_path / "x.csv", kind="signal")
    assert (batch.ids, batch.y.tolist()) == (("7", "9"), [1, 0])
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])


def test_the_index_of_pandas_is_no_value_beside_a_column_of_names(tmp_path):
    rows = [["0", "p1", *CELLS[0], "1"], ["1", "p2", *CELLS[1], "0"]]
    (tmp_path / "x.csv").write_text(table(rows, ["", "id", "a", "b", "c", "d", "label"]))
    batch = load(tmp_path / "x.csv", kind="signal")
    assert batch.ids == ("p1", "p2")
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])


def test_a_first_column_without_a_name_can_be_the_label(tmp_path):
    (tmp_path / "x.csv").write_text(table([["1", *CELLS[0]], ["0", *CELLS[1]]], ["", "a", "b", "c", "d"]))
    batch = load(tmp_path / "x.csv", label_column="0", kind="signal")
    assert (batch.ids, batch.y.tolist()) == (("0", "1"), [1, 0])


def test_the_default_header_of_pandas_is_no_sample(tmp_path):
    (tmp_path / "x.csv").write_text(table([["0", *CELLS[0]], ["1", *CELLS[1]]], ["", "0", "1", "2", "3"]))
    (tmp_path / "y.csv").write_text("1\n0\n")
    assert torch.equal(load(tmp_path / "x.csv", labels=str(tmp_path / "y.csv")).x, torch.from_numpy(X)[:, None])


def test_labels_in_a_second_file(tmp_path):
    (tmp_path / "x.csv").write_text(table(CELLS))
    (tmp_path / "y.csv").write_text("1\n0\n")
    batch = load(tmp_path / "x.csv", labels=str(tmp_path / "y.csv"), bounds=(-10, 10))
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])
    assert (batch.y.tolist(), batch.bounds) == ([1, 0], (-10, 10))


ROWS = table([[*CELLS[0], "1"], [*CELLS[1], "0"]])


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("a.npz", {"z": IMAGES, "y": Y}, {}, "expected an array named x in .* got z, y"),
        ("a.npz", {"x_test": IMAGES, "y_test": Y}, {"split": "val"}, "expected an array named x"),
        ("a.npz", {"x": IMAGES}, {}, "expected an array named y in .* add it or pass labels"),
        ("a.npz", {"x": IMAGES, "y": Y[:4]}, {}, "the array y has shape .* for 6 inputs"),
        ("a.npz", {"x": IMAGES, "y": Y, "ids": Y[:4]}, {}, "the array ids has shape .* for 6 inputs"),
        ("a.npz", {"x": IMAGES, "y": Y, "masks": np.ones((6, 5, 5))}, {}, r"numeric masks of shape \(n, 5, 4\)"),
        ("a.npz", {"x": IMAGES, "y": Y, "classes": np.array(["a", "b"])}, {}, r"labels in 0\.\.1, got 0 to 3"),
        ("a.npz", {"x": IMAGES, "y": Y}, {"classes": "up,down"}, "got 'up,down': pass a list"),
        ("a.npz", {"x": IMAGES.astype(np.float32), "y": Y}, {}, "expected values in .* divide by 255"),
        ("a.npz", {"x": IMAGES / np.where(IMAGES > 250, np.nan, 255), "y": Y}, {}, "hold NaN or infinite values"),
        ("a.npz", {"x": IMAGES.astype(str), "y": Y}, {}, "expected numeric inputs"),
        ("a.npz", {"x": IMAGES.astype(object), "y": Y}, {}, "expected plain arrays"),
        ("a.npz", {"x": Y, "y": Y}, {}, "samples along the first axis, got shape"),
        ("a.npz", {"x": np.zeros((6, 3, 4, 5, 6, 7)), "y": Y}, {}, "samples along the first axis, got shape"),
        (
            "a.npz",
            {"x": np.zeros((6, 50, 12)), "y": Y},
            {"rate": 100},
            "50 channels of 12 values: swap the last two axes",
        ),
        ("a.npz", {"x": np.zeros((6, 50)), "y": Y}, {"kind": "video"}, "video samples along the first axis"),
        ("a.npz", b"PK\x03\x04 no zip", {}, "as .npz"),
        ("a.npy", b"nothing", {"labels": "y.csv"}, "as .npy"),
        ("a.npy", np.array([{}, {}], object), {"labels": "y.csv"}, "objects in dtype.* expected plain arrays"),
        ("a.npy", np.array(3.0), {"labels": "y.csv"}, "single value"),
        ("a.npy", X, {}, "an array named y in '.*a.npy', got x: add it or pass labels"),
        ("x.csv", table(CELLS), {}, "cannot tell which column of 'x.csv' is the label"),
        ("x.csv", "1\n2\n", {}, "cannot tell which column"),
        ("x.csv", ",a,b,c\n0,0.5,1.5,2.5\n1,0.5,1.5,2.5\n", {}, "cannot tell which column"),
        ("x.csv", "id,a,b,c\n0,0.5,1.5,2.5\n1,0.5,1.5,2.5\n", {}, "cannot tell which column"),
        ("x.csv", ROWS, {"label_column": "9"}, r"no column '9': expected a position in 0\.\.4"),
        ("x.csv", "0.5,1.5,a\n0.5,oops,b\n", {}, "got 'oops' in line 2, column 2: correct the cell"),
        ("x.csv", "t0,t1,label\n0.5,1.5,b\n0.5,1.5,\n", {}, "got none in line 3 of 'x.csv': fill it in or remove"),
        ("x.csv", "t0,t1,label\n0.5,,b\n", {}, "got '' in line 2, column 2"),
        ("x.csv", "0.5,1.5,a\n0.5,b\n", {}, "line 2 of 'x.csv' has 2 cells, but the first line has 3"),
        ("x.csv", "0.5,1.5,a\n0.5,nan,b\n", {}, "1 of 2 samples hold NaN or infinite values, first '1'"),
        ("x.csv", "a,b,label\n", {}, "has a header but no samples"),
        ("x.csv", "\n\n", {}, "is empty"),
    ],
)
def test_errors(tmp_path, monkeypatch, name, content, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y.csv").write_text("1\n2\n")
    if isinstance(content, dict):
        np.savez(name, **content)
    elif isinstance(content, np.ndarray):
        np.save(name, content, allow_pickle=True)
    else:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(OptionError if "label_column" in options else DataError, match=sentence):
        load(tmp_path / name, **options)
