"""Raw files, the runner that makes them once, and pages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlab
from benchmarks import __main__ as command
from benchmarks import data
from benchmarks.attacks import Pairs
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import RAW, Origin, Raw, Store, from_curves, to_curves

NOW = rlab.__version__
CURVES = (((1, 2.0), (4, 0.5)), (), ((3, 1.25),))


def test_a_raw_file_keeps_numbers_facts_and_origin(tmp_path: Path) -> None:
    store = Store(tmp_path / "claim")
    raw = Raw(
        {"a": {"b": [1.0, None, math.inf], "c": 2.5}, "d": [], **from_curves(CURVES)}, {"ids": ["x"], "seen": False}
    )
    store.write("one", raw, Origin(NOW, "abc", "CPU", 1.5, {"budget": 3, "palette": ("x",)}))
    held = store.read("one")
    assert held.numbers["a"] == {"b": [1.0, None, math.inf], "c": 2.5}
    assert held.numbers["d"] == []
    assert to_curves(held.numbers) == CURVES
    assert held.facts == {"ids": ["x"], "seen": False}
    assert store.origin("one") == Origin(NOW, "abc", "CPU", 1.5, {"budget": 3, "palette": ["x"]})
    assert store.matches("one", {"budget": 3, "palette": ("x",)})
    assert not store.matches("one", {"budget": 4, "palette": ("x",)})
    assert not store.matches("two", {})
    store.write("one", raw, Origin("0.1.9", settings={"budget": 3}))
    assert not store.matches("one", {"budget": 3})  # another version made it


class Toy:
    """A claim of two pieces that counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.budget = 3

    def pieces(self, options: Options) -> Iterator[Piece]:
        for name in ("a", "b"):
            yield Piece(name, name, {"budget": self.budget}, lambda device, name=name: self.make(name))  # type: ignore[misc]
        yield Piece("absent", "b", {}, self.absent)

    def make(self, name: str) -> Raw:
        self.runs.append(name)
        return Raw({"value": float(len(self.runs))})

    def absent(self, device: str) -> Raw:
        raise data.Absent("no data")

    def figures(self, store: Store) -> Figures:
        return {name: store.read(name).numbers["value"] for name in store.names()}

    @property
    def claim(self) -> Claim:
        quick, cases = {"quick": math.nan}, ("a", "b")
        return Claim("toy", "Toy", "", "Rules.", lambda o: quick, self.pieces, figures=self.figures, cases=cases)


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    figures: dict[str, float] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures


def test_a_piece_runs_once_for_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy, words = Toy(), ["--raw", str(tmp_path), "--device", "cpu"]
    toy.claim.main([*words, "--only", "a"])
    toy.claim.main(words)
    assert toy.runs == ["a", "b"]  # and what is absent is skipped
    assert last_line(capsys) == {"a": 1.0, "b": 2.0}
    assert Store(tmp_path).origin("a").version == rlab.__version__
    toy.claim.main([*words, "--page"])
    toy.claim.main([*words, "--minutes", "0", "--fresh"])
    assert toy.runs == ["a", "b"]
    toy.budget = 4
    toy.claim.main(words)
    toy.claim.main([*words, "--fresh", "--only", "b"])
    assert toy.runs == ["a", "b", "a", "b", "b"]
    assert not list(tmp_path.glob("*.lock"))


def test_quick_prints_figures_and_unknown_cases_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Toy().claim.main(["--quick"])
    assert last_line(capsys) == {"quick": None, "seconds": pytest.approx(0, abs=5)}
    with pytest.raises(SystemExit):
        Toy().claim.main(["--only", "c"])


def test_a_page_states_version_commit_and_device(tmp_path: Path) -> None:
    toy, store = Toy(), Store(tmp_path / "raw")
    store.write("a", Raw(), Origin("0.2.0", "", "an H200"))
    store.write("b", Raw(), Origin("0.3.0", "abc123", "a CPU"))
    claim = Claim("toy", "Toy", "", "Rules.", toy.figures, sections=lambda store: ["## One"])  # type: ignore[arg-type]
    claim.write_page(store, tmp_path / "toy.md")
    page = (tmp_path / "toy.md").read_text()
    assert "rlab 0.2.0 (commit unknown) and rlab 0.3.0 (abc123) on an H200 and a CPU" in page
    assert page.startswith("# Toy\n\nRules.\n")


def test_a_page_names_the_cases_without_results(tmp_path: Path) -> None:
    def piece(name: str, case: str) -> Piece:
        return Piece(name, case, {}, lambda device: Raw())

    pieces, store = [piece("a1", "a"), piece("a2", "a"), piece("b1", "b"), piece("c1", "c")], Store(tmp_path / "raw")
    store.write("a2", Raw(), Origin())
    claim = Claim("toy", "Toy", "", "", lambda o: {}, lambda o: pieces, lambda store: ["## One"])
    claim.write_page(store, tmp_path / "toy.md")
    assert "`python -m benchmarks.toy --only b,c`" in (tmp_path / "toy.md").read_text()
    for name in ("b1", "c1"):
        store.write(name, Raw(), Origin())
    claim.write_page(store, tmp_path / "toy.md")
    assert "--only" not in (tmp_path / "toy.md").read_text()


def test_every_claim_has_a_command_and_every_weight_file_its_checksum() -> None:
    assert set(command.CLAIMS) >= {
        "anytime",
        "peers",
        "labels",
        "transfer",
        "video",
        "explain",
        "ecg",
        "harden",
        "scale",
    }
    assert {path.stem for path in data.WEIGHTS.glob("*.safetensors")} == set(data.TRAINED)
    for name, source in data.TRAINED.items():
        assert data.checksum(data.weights(name)) == source.sha256, name


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLAB_REAL", str(tmp_path))
    with pytest.raises(data.Absent, match="mitdb"):
        data.real("mitdb")


@pytest.mark.parametrize("name", command.CLAIMS)
def test_stored_raw_files_can_be_read(name: str) -> None:
    store = Store(RAW / name)
    assert all(store.origin(file).version for file in store.names())


def test_the_pairs_that_tell_a_ratio_tell_it_four_times_in_five() -> None:
    rng = np.random.default_rng(0)
    sample = Pairs.of(np.exp(rng.normal(0.0, 0.6, 4000)), np.ones(4000))
    assert sample.spread == pytest.approx(0.6, rel=0.05)
    count = sample.needed(1.2)
    logs = rng.normal(np.log(1.2), 0.6, (2000, count))
    ranks = np.abs(logs).argsort(1).argsort(1) + 1
    score = np.abs((np.sign(logs) * ranks).sum(1)) / np.sqrt(count * (count + 1) * (2 * count + 1) / 6)
    assert np.mean(score > 1.96) == pytest.approx(0.8, abs=0.05)
    assert Pairs(count, sample.spread).least == pytest.approx(1.2, rel=0.01)
    some = Pairs.of(np.array([np.inf, 1.0, 2.0, 3.0, np.nan, np.inf]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.inf]))
    assert some.count == 4  # attacked under both, and flipped under one at least
    assert np.isfinite(some.spread)
