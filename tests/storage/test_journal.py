"""Answers are appended as they arrive, and known again by their sample and input, however the file ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlab.errors import FolderError
from rlab.storage.journal import Journal, count_answers, fingerprints, journal_path, read_journal

X = torch.linspace(0, 1, 3 * 12).view(3, 1, 12)
ANSWERS = torch.tensor([[0.5, 1.5], [2.5, float("nan")], [float("-inf"), 3.5]])


def written(path: Path, sent: int = 1) -> Path:
    with Journal(path) as journal:
        journal.add(torch.tensor([4, 0]), X[:2], ANSWERS[:2], 1)
        journal.add(torch.tensor([0]), X[2:], ANSWERS[2:], sent)
    return path


def same(answer: Tensor, wanted: Tensor) -> bool:
    return torch.equal(answer.nan_to_num(nan=7.0), wanted.nan_to_num(nan=7.0))


def test_another_process_gets_the_same_answers_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.journal", sent=3)
    with Journal(path) as journal:
        found = journal.recall(torch.tensor([0, 0, 4, 4]), X[[2, 1, 0, 1]])
        assert sorted(found) == [0, 1, 2]  # the second input was never sent for sample 4
        assert all(same(found[row][0], ANSWERS[at]) for row, at in enumerate((2, 1, 0)))
        assert [found[row][1] for row in range(3)] == [3, 1, 1]
        assert journal.recall(torch.tensor([0]), X[2:]) == {}


def test_equal_inputs_get_their_answers_in_order_also_after_several_stops(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    for number in range(3):
        with Journal(path) as journal:
            for before in range(number):
                ((answer, _),) = journal.recall(torch.tensor([0]), X[:1]).values()
                assert answer.tolist() == [before]
            journal.add(torch.tensor([0]), X[:1], torch.tensor([[float(number)]]), 1)


@given(cut=st.integers(0, 200))
def test_a_journal_that_was_cut_keeps_what_is_whole(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = written(tmp_path_factory.mktemp("journal") / "a.journal")
    content = path.read_bytes()
    path.write_bytes(content[: min(cut, len(content))])
    whole = read_journal(path)
    assert len(whole) == sum(cut >= end for end, _ in [(0, None), *read_of(content, path)][1:])
    with Journal(path) as journal:
        journal.add(torch.tensor([9]), X[:1], ANSWERS[:1], 1)
    assert len(read_journal(path)) == len(whole) + 1


def read_of(content: bytes, beside: Path) -> list[tuple[int, object]]:
    other = beside.with_name("whole.journal")
    other.write_bytes(content)
    return [*read_journal(other)]


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_damaged_answer_and_what_follows_is_not_used(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.mktemp("journal") / "a.journal")
    content, ends = bytearray(path.read_bytes()), [end for end, _ in read_journal(path)]
    place = at % len(content)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    assert [end for end, _ in read_journal(path)] == [end for end in ends if end <= place]


@given(row=st.integers(0, 2), value=st.integers(0, 11), bit=st.integers(0, 31))
def test_every_bit_of_an_input_counts(row: int, value: int, bit: int) -> None:
    other = X.clone()
    other.view(torch.int32)[row, 0, value] ^= 1 << bit if bit < 31 else -(1 << 31)
    differs = (fingerprints(X) != fingerprints(other)).tolist()
    assert differs == [at == row for at in range(3)]


def test_large_inputs_and_other_types_have_fingerprints_by_row() -> None:
    large = torch.rand(3, 1, 1500, 1000)
    assert torch.equal(fingerprints(large), torch.cat([fingerprints(row) for row in large.split(1)]))
    for kind in (torch.float64, torch.float16, torch.uint8):
        assert len(set(fingerprints((255 * X).to(kind)).tolist())) == 3


def test_queries_are_counted_over_all_journals_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    assert count_answers(tmp_path) == 0
    for key in ("chunk-0", "chunk-1"):
        written(journal_path(tmp_path, key), sent=2)
    assert count_answers(tmp_path) == 2 * (2 + 2)


def test_a_full_journal_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlab.storage.journal._MOST", 150)
    path = tmp_path / "a.journal"
    with Journal(path) as journal:
        for number in range(9):
            journal.add(torch.tensor([number]), X[:1], ANSWERS[:1], 1)
    kept = read_journal(path)
    assert 0 < len(kept) < 9
    assert path.stat().st_size == kept[-1][0] <= 150
    with Journal(path) as journal:
        assert journal.recall(torch.tensor([0]), X[:1])


def test_no_file_holds_nothing(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none.journal") == []


def test_a_link_in_place_of_a_journal_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a.journal").symlink_to(tmp_path / "target")
    with pytest.raises(FolderError):
        Journal(tmp_path / "a.journal")
    assert (tmp_path / "target").read_text() == "mine"
