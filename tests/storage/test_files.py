"""Files come back as they were written, and a failed write leaves the old one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from rlab.errors import FolderError
from rlab.storage import files, tables
from rlab.storage.index import Index, read_index
from tests.helpers import read_csv


def arrays(n: int, patches: int, seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "assignment": torch.randint(0, 9, (n, patches), generator=draw).to(torch.uint8),
        "original": torch.rand(n, 2, 5, generator=draw),
        "perturbed": torch.rand(n, 2, 5, generator=draw),
    }


def test_arrays_come_back_with_their_setting(tmp_path: Path) -> None:
    made = arrays(3, 7)
    files.write_arrays(tmp_path / "a", made, '{"seed": 1}')
    found, setting = files.read_arrays(tmp_path / "a")
    assert setting == '{"seed": 1}'
    assert found.keys() == made.keys()
    assert all(torch.equal(found[name], made[name]) for name in made)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_index_locates_inputs(tmp_path: Path) -> None:
    index = Index((("parts/a.safetensors", 2), ("parts/b.safetensors", 1)), (3, 8, 8))
    assignment = torch.arange(35).reshape(5, 7).to(torch.uint8)
    files.write_index(tmp_path, assignment, torch.tensor([1, 0, 1, 0, 1]), index, "the setting")
    read = read_index(tmp_path / files.ARRAYS)
    assert (read.shards, read.shape) == (index.shards, index.shape)
    assert [read.at(place) for place in range(5)] == [0, None, 1, None, 2]
    files.write_index(tmp_path, assignment, torch.tensor([1, 0, 1, 1, 1]), index, "the setting")
    with pytest.raises(FolderError):
        read_index(tmp_path / files.ARRAYS)
    found, setting = files.read_assignment(tmp_path / files.ARRAYS)
    assert torch.equal(found, assignment)
    assert setting == "the setting"
    files.write_arrays(tmp_path / "one", arrays(4, 7, 0), "")
    shape = tuple(arrays(4, 7, 0)["original"].shape[1:])
    assert read_index(tmp_path / "one") == Index((("one", 4),), shape)


def test_consecutive_tables_become_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP", 3)
    schema = pa.schema([("id", pa.string()), ("far", pa.list_(pa.float64()))])
    parts = [[{"id": f"{i}-{j}", "far": [0.5] * i} for j in range(2)] for i in range(5)]
    tables.write_tables(tmp_path / "r", [pa.Table.from_pylist(part, schema) for part in parts], "{}")
    assert files.read_rows(tmp_path / "r") == [row for part in parts for row in part]
    assert pq.ParquetFile(tmp_path / "r").num_row_groups == 3
    with files.opened_parquet(tmp_path / "r") as file:
        stored = tables.StoredTable(file)
        assert (stored.column_names, stored.num_rows) == (["id", "far"], 10)
        assert stored["far"].to_pylist() == [row["far"] for part in parts for row in part]


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [{"id": "ü", "n": -2, "far": far, "scores": [0.25, 0.75]} for far in (math.inf, 0.1, math.nan)]
    files.write_rows(tmp_path / "r", rows, "{}")
    assert str(files.read_rows(tmp_path / "r")) == str(rows)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError):  # noqa: PT011
        files.write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"


Reader = Callable[[Path], object]
READERS: list[Reader] = [files.read_arrays, files.read_rows, files.read_json, read_index, files.read_tree]


@pytest.mark.parametrize("content", [None, b"", b"PAR1 nonsense", b"\x80\x04.", b'{"l2": '])
def test_an_unreadable_file_raises_an_error_that_names_it(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    for read in READERS:
        with pytest.raises(FolderError, match="bad"):
            read(tmp_path / "bad")


def test_a_tree_of_tensors_comes_back_with_its_keys(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    tree = {
        "weights": {"a": shared, "b": shared[1:3], "turned": torch.arange(6).reshape(2, 3).T},
        "step": 3,
        7: [1.5, None, "ä", {"deep": torch.tensor(True)}],
        "none": {},
    }
    files.write_tree(tmp_path / "below" / "tree", tree)
    read = files.read_tree(tmp_path / "below" / "tree")
    assert list(read) == ["weights", "step", 7, "none"]
    assert torch.equal(read["weights"]["b"], shared[1:3])
    assert torch.equal(read["weights"]["turned"], tree["weights"]["turned"])  # type: ignore[index]
    assert (read["step"], read[7][:3], read["none"]) == (3, [1.5, None, "ä"], {})
    assert bool(read[7][3]["deep"])
    files.write_tree(tmp_path / "tree", {"step": 1, "loss": math.inf})
    assert files.read_tree(tmp_path / "tree") == {"step": 1, "loss": math.inf}


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_continues_from_a_state_in_a_file(kind: type[torch.optim.Optimizer], tmp_path: Path) -> None:
    def trained(steps: int, state: tuple[dict[str, Tensor], dict[str, Any]] | None = None) -> torch.nn.Linear:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
        if state is not None:
            model.load_state_dict(state[0])
            optimizer.load_state_dict(state[1])
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).pow(2).sum().backward()
            optimizer.step()
        files.write_tree(tmp_path / "state", [model.state_dict(), optimizer.state_dict()])
        return model

    unbroken = trained(5)
    trained(2)
    again = trained(3, tuple(files.read_tree(tmp_path / "state")))
    assert torch.equal(again.weight, unbroken.weight)


def test_records_as_csv(tmp_path: Path) -> None:
    rows = [{"name": 'a "b", c', "l2": 0.1 + 0.2}, {"name": "ü\nx", "l2": math.nan}]
    files.write_csv(tmp_path / "below" / "t.csv", rows)
    read = read_csv(tmp_path / "below" / "t.csv")
    assert [row["name"] for row in read] == [row["name"] for row in rows]
    assert float(read[0]["l2"]) == 0.1 + 0.2
    files.write_csv(tmp_path / "none.csv", [])
    assert read_csv(tmp_path / "none.csv") == []


def test_json_has_no_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "below" / "a.json", {"l2": [math.nan, math.inf, -math.inf, 1.5], "ü": (1, 2)})
    text = (tmp_path / "below" / "a.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert files.read_json(tmp_path / "below" / "a.json") == {"l2": [None, "inf", "-inf", 1.5], "ü": [1, 2]}
