import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlab.data import fields
from rlab.data.fields import Take, check_room, free_bytes
from rlab.errors import DataError, OptionError


@given(st.integers(0, 50), st.integers(1, 60) | st.none(), st.booleans(), st.integers(0, 9))
def test_order_picks_distinct_samples(count, limit, shuffle, seed):
    order = Take(limit, shuffle, seed).order(count)
    assert len(order) == min(count, limit or count) == len(set(order))
    assert set(order) <= set(range(count))
    assert shuffle or order == list(range(len(order)))


def test_a_smaller_limit_is_the_start_of_a_larger_one():
    assert Take(5, True, 3).order(40) == Take(20, True, 3).order(40)[:5]
    assert Take(5, True, 3).order(40) != Take(5, True, 4).order(40)


def test_limit_below_one_is_refused():
    with pytest.raises(OptionError):
        Take(limit=0)


def test_samples_that_exceed_the_memory_are_refused(monkeypatch):
    assert (free_bytes() or 2**31) > 2**20
    monkeypatch.setattr(fields, "free_bytes", lambda: 4 * 3 * 100)
    check_room(100, (3,))
    with pytest.raises(DataError, match=r"101 samples of shape \(3,\) need .* pass a limit or a smaller size"):
        check_room(101, (3,))
    monkeypatch.setattr(fields, "free_bytes", lambda: None)
    check_room(10**9, (3,))
