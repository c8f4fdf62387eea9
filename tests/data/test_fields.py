import pytest

from rlab.data import fields
from rlab.data.fields import check_room, free_bytes
from rlab.errors import DataError


def test_samples_that_exceed_the_memory_are_refused(monkeypatch):
    assert (free_bytes() or 2**31) > 2**20
    monkeypatch.setattr(fields, "free_bytes", lambda: 4 * 3 * 100)
    check_room(100, (3,))
    with pytest.raises(DataError, match=r"101 samples of shape \(3,\) need .* pass a limit or a smaller size"):
        check_room(101, (3,))
    monkeypatch.setattr(fields, "free_bytes", lambda: None)
    check_room(10**9, (3,))
