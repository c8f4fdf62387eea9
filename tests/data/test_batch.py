from typing import Any

import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch, summarise_losses
from rlab.errors import DataError

X = torch.linspace(0, 1, 24).view(2, 3, 4)
Y = torch.tensor([0, 1])


def test_rows_keep_their_labels_ids_and_masks():
    batch = Batch(X, Y, ids=("a", "b"), classes=("cat", "dog"), masks=torch.eye(2, 4, dtype=torch.bool))
    one = batch[[1]]
    assert one.masks is not None
    assert (one.ids, one.y.tolist(), one.kind, one.size) == (("b",), [1], "signal", (4,))
    assert torch.equal(one.x, X[1:])
    assert torch.equal(one.masks, torch.eye(2, 4, dtype=torch.bool)[1:])
    assert batch.label_name(1) == "dog"
    assert batch[:1].ids == ("a",)


def test_default_ids_are_positions():
    assert Batch(X, Y).ids == ("0", "1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": X[:, 0]}, "expected inputs of shape"),
        ({"y": Y[:1]}, "got 2 inputs, 1 labels and 2 ids"),
        ({"x": X[:0], "y": Y[:0]}, "expected at least one sample"),
        ({"x": X.to(torch.uint8)}, "expected float32 inputs"),
        ({"x": X / torch.tensor([1.0, 0.0, 1.0, 1.0])}, "2 of 2 samples hold NaN or infinite values, first '0'"),
        ({"x": X * 255}, r"expected values in \[0.0, 1.0\], got 0 to 255: divide by 255"),
        ({"x": (X * 65535).round()}, r"got 0 to 65535: divide by 65535 or .* \(-D bounds=\[0,65535\]\)"),
        ({"x": (X * 4095).round()}, r"-D bounds=\[0,4095\]"),
        ({"x": X * 300.5}, "rescale them or pass their true bounds"),
        ({"x": X - 3}, r"rescale them or pass their true bounds, such as bounds=\(-3,-2\) \(-D bounds=\[-3,-2\]\)"),
        ({"y": Y - 1}, "expected int64 labels of at least 0"),
        ({"y": Y.float()}, "expected int64 labels of at least 0"),
        ({"masks": torch.ones(2, 5, dtype=torch.bool)}, r"expected masks of shape \(2, 4\), got \(2, 5\)"),
        ({"r_peaks": ((1,),)}, "got r_peaks of 1 samples for 2 inputs"),
        ({"leads": ("II",)}, "got 1 leads for 3 channels"),
    ],
)
def test_errors(change, sentence):
    with pytest.raises(DataError, match=sentence):
        Batch(**({"x": X, "y": Y} | change))


def test_signals_may_have_any_value():
    assert Batch(X * 1000 - 500, Y, bounds=UNBOUNDED).bounds == UNBOUNDED


@pytest.mark.parametrize("end", [0.1, -0.059025263979977635, 1234.5678])
def test_values_at_an_end_that_float32_rounds_are_within_the_bounds(end: float) -> None:
    x = torch.full_like(X, end)
    assert Batch(x, Y, bounds=(end, end + 1)).bounds == (end, end + 1)
    assert Batch(x, Y, bounds=(end - 1, end)).bounds == (end - 1, end)


def test_rows_keep_their_r_peaks_and_leads():
    batch = Batch(
        x=torch.zeros(3, 2, 8), y=torch.zeros(3, dtype=torch.int64), r_peaks=((1,), (), (2, 9)), leads=("II", "V5")
    )
    assert batch[1:].r_peaks == ((), (2, 9))
    assert batch[[2, 0]].r_peaks == ((2, 9), (1,))
    assert batch[[2]].leads == ("II", "V5")


def test_losses_are_counted_by_reason():
    left_out = [("a", "is flat"), ("b", "holds a gap"), ("c", "is flat"), *((str(i), f"odd {i}") for i in range(4))]
    told = summarise_losses(left_out, 2)
    assert told == "7 left out: 2 × is flat (first a); 1 × holds a gap (first b); 4 for other reasons"


@pytest.mark.parametrize("rows", [[0, 2], [-4, -2], torch.tensor([0, 2]), torch.tensor([True, False, True, False])])
def test_rows_are_numbers_or_a_mask(rows: Any) -> None:
    batch = Batch(torch.rand(4, 1, 8), torch.arange(4), ids=("a", "b", "c", "d"))
    part = batch[rows]
    assert (part.ids, part.y.tolist()) == (("a", "c"), [0, 2])
    assert torch.equal(part.x, batch.x[::2])
    short: Any = torch.tensor([True, False])
    with pytest.raises(IndexError):
        batch[short]
