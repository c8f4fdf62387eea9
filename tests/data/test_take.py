"""A limit selects samples of all classes, by the seed; the labels alone decide."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.data.take import Take
from rlab.errors import OptionError


@given(
    st.lists(st.integers(0, 4), max_size=40), st.integers(1, 50) | st.none(), st.booleans(), st.booleans(),
    st.integers(0, 9),
)  # fmt: skip
def test_rows_are_distinct_and_in_the_order_of_the_data(labels, limit, shuffle, first, seed):
    first = first and not shuffle
    rows = Take(limit, shuffle, seed, "first" if first else "spread").rows(labels)
    assert len(rows) == min(len(labels), limit or len(labels)) == len(set(rows))
    assert set(rows) <= set(range(len(labels)))
    assert shuffle or rows == sorted(rows)
    assert not first or rows == list(range(len(rows)))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 60), st.integers(0, 9))
def test_a_limit_is_spread_over_the_classes(labels, limit, seed):
    rows = Take(limit, seed=seed).rows(torch.tensor(labels))
    counts, every = Counter(labels[row] for row in rows), Counter(labels)
    most = max(counts.values())
    for label, count in every.items():  # a class has as many samples as any other, unless it has no more
        assert counts[label] >= min(count, most - 1)


def test_five_of_ten_classes_are_not_five_of_the_first():
    labels = np.repeat(np.arange(10), 100)
    assert len({int(labels[row]) for row in Take(5).rows(labels)}) == 5
    assert Take(5, order="first").rows(labels) == [0, 1, 2, 3, 4]


def test_the_seed_decides_and_a_smaller_limit_is_part_of_a_larger_one():
    labels = [i % 3 for i in range(60)]
    assert Take(7, seed=1).rows(labels) == Take(7, seed=1).rows(labels) != Take(7, seed=2).rows(labels)
    assert set(Take(7).rows(labels)) < set(Take(20).rows(labels))
    assert Take(5, shuffle=True, seed=3).rows(labels) == Take(20, shuffle=True, seed=3).rows(labels)[:5]


def test_names_and_several_labels_are_classes_too():
    assert len(Take(2).rows(["cat"] * 9 + ["dog"])) == 2
    assert 9 in Take(2).rows(["cat"] * 9 + ["dog"])
    several = torch.tensor([[1, 0]] * 8 + [[0, 1], [1, 1]])
    assert {8, 9} < set(Take(3).rows(several))


def test_what_contradicts_itself_is_refused():
    with pytest.raises(OptionError):
        Take(limit=0)
    with pytest.raises(OptionError):
        Take(3, shuffle=True, order="first")
