import numpy as np
import pytest
import torch

from rlab.data import load
from rlab.data.batch import UNBOUNDED
from rlab.errors import InputError

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


def test_names_and_ids(tmp_path):
    rows = [["p1", *CELLS[0], "sick"], ["p2", *CELLS[1], "fine"]]
    (tmp_path / "x.csv").write_text(table(rows, ["id", "a", "b", "c", "d", "label"]))
    batch = load(tmp_path / "x.csv")
    assert (batch.ids, batch.y.tolist(), batch.classes) == (("p1", "p2"), [1, 0], ("fine", "sick"))
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])


def test_labels_in_a_second_file(tmp_path):
    (tmp_path / "x.csv").write_text(table(CELLS))
    (tmp_path / "y.csv").write_text("1\n0\n")
    batch = load(tmp_path / "x.csv", labels=str(tmp_path / "y.csv"), bounds=(-10, 10))
    assert torch.equal(batch.x, torch.from_numpy(X)[:, None])
    assert (batch.y.tolist(), batch.bounds) == ([1, 0], (-10, 10))


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (table(CELLS), {}, "cannot tell which column of 'x.csv' is the label"),
        ("1\n2\n", {}, "cannot tell which column"),
        (
            table([[*CELLS[0], "1"], [*CELLS[1], "0"]]),
            {"label_column": "9"},
            r"no column '9': expected a position in 0\.\.4",
        ),
        ("0.5,1.5,a\n0.5,oops,b\n", {}, "got 'oops' in line 2, column 2: mend the cell"),
        ("t0,t1,label\n0.5,,b\n", {}, "got '' in line 2, column 2"),
        ("0.5,1.5,a\n0.5,b\n", {}, "line 2 of 'x.csv' has 2 cells where the first has 3"),
        ("0.5,1.5,a\n0.5,nan,b\n", {}, "1 of 2 samples hold NaN or infinite values, first '1'"),
        ("a,b,label\n", {}, "has a header and no samples"),
        ("\n\n", {}, "is empty"),
    ],
)
def test_bad_tables(tmp_path, text, options, sentence):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        load(tmp_path / "x.csv", **options)
