"""Making a benchmark: the content of the folder, resuming, and invalid input."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.benchmarking import make_benchmark, verify_benchmark
from rlab.benchmarking.config import folder_name
from rlab.benchmarking.make import NothingFlipped
from rlab.benchmarking.manifest import versions
from rlab.data.batch import UNBOUNDED
from rlab.data.load import load
from rlab.errors import FolderError, InputError, OptionError
from rlab.results.result import Status
from rlab.runs.fingerprint import agent_fingerprint
from tests.benchmarking.cases import OPTIONS, PAIRS, Case, brightness, counted, made_once, reached, victim_queries
from tests.helpers import PATCHES, RANKS, exact_victim, planted


def files(folder: Path) -> dict[str, str]:
    kept = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".json", ".parquet")]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_every_file_makes_its_victim_err_and_counts_are_exact(rank: int, form: str, tmp_path: Path):
    case, benchmark = Case(rank), made_once(tmp_path, rank, form)
    assert victim_queries(rank, form) == {phase: count for phase, count in counted(benchmark).items() if count}
    originals = benchmark.read(benchmark.originals())
    assert torch.equal(originals, benchmark.format.stored(case.batch.x))
    assert len(reached(benchmark, "flip")) == 5
    assert reached(benchmark, "x1.5")
    for level in benchmark.ladder.names:
        rows = reached(benchmark, level)
        if not rows:
            continue
        x, y = benchmark.read(rows), torch.tensor([row["label"] for row in rows])
        assert (case.victim(x).argmax(1) != y).all()
        far = (x - originals[[row["place"] for row in rows]]).flatten(1).norm(dim=1)
        torch.testing.assert_close(far, torch.tensor([row["l2"] for row in rows]), rtol=1e-5, atol=1e-6)
        probability = case.victim(x).exp().gather(1, y[:, None]).squeeze(1)
        torch.testing.assert_close(
            probability, torch.tensor([row["probability"] for row in rows]), rtol=1e-3, atol=1e-6
        )


def test_levels_are_different_sets_that_grow(tmp_path: Path):
    benchmark = made_once(tmp_path)
    flip = {row["place"]: row for row in reached(benchmark, "flip")}
    for level, times in (("x1.5", 1.5), ("x2", 2.0)):
        for row in reached(benchmark, level):
            assert row["sha256"] != flip[row["place"]]["sha256"]
            assert 0.94 * times <= row["l2"] / flip[row["place"]]["l2"] <= times + 1e-3


def test_every_sample_has_a_row_at_every_level_and_reasons_where_it_is_absent(tmp_path: Path):
    benchmark = made_once(tmp_path)
    assert len(benchmark.rows) == 6 + 6 * 3
    for level in benchmark.ladder.names:
        rows = benchmark.of("exact", level)
        assert [row["place"] for row in rows] == list(range(6))
        for row in rows:
            assert bool(row["reached"]) == (row["reason"] == "") == bool(row["file"])
    wrong = benchmark.of("exact", "flip")[1]
    assert wrong["reason"] == Status.SKIPPED.value
    assert wrong["queries_search"] == 1
    assert benchmark.of("exact", "x2")[1]["reason"] == f"no flip: {Status.SKIPPED.value}"
    on_disk = {path.relative_to(benchmark.folder).as_posix() for path in benchmark.folder.rglob("*.png")}
    assert on_disk == {row["file"] for row in benchmark.rows if row["file"]}


def test_the_same_seed_gives_the_same_files_and_another_does_not(tmp_path: Path):
    first = made_once(tmp_path)
    same, other = (Case().make(tmp_path / str(seed), seed=seed) for seed in (3, 4))
    assert files(first.folder) == files(same.folder)
    assert first.manifest.hash == same.manifest.hash != other.manifest.hash


def test_a_finished_benchmark_needs_no_queries(tmp_path: Path):
    first = made_once(tmp_path)
    case = Case()
    again = case.make(tmp_path / "b")
    assert again.manifest.hash == first.manifest.hash
    assert not case.victim.rows


def test_a_folder_of_another_benchmark_is_refused(tmp_path: Path):
    made_once(tmp_path)
    with pytest.raises(FolderError):
        Case().make(tmp_path / "b", seed=9)
    with pytest.raises(FolderError):
        Case().make(tmp_path / "b", victim=brightness())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError):
        Case().make(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_two_victims_share_the_originals(tmp_path: Path):
    case = Case(n=3)
    other = exact_victim(2, seed=0)
    options: dict[str, Any] = OPTIONS | {"patch": PATCHES[2], "chunk": 4}
    benchmark = make_benchmark({"a": case.victim, "b": other}, case.batch, tmp_path / "b", **options)
    assert benchmark.victims == ("a", "b")
    assert len(benchmark.originals()) == 3
    flips = [[row["sha256"] for row in benchmark.of(name, "flip")] for name in "ab"]
    assert flips[0] == flips[1]  # the same model, the same seed
    assert sum(case.victim.rows.values()) + sum(other.rows.values()) == sum(counted(benchmark).values())


def test_a_targeted_benchmark_yields_the_class(tmp_path: Path):
    case = Case()
    benchmark = case.make(tmp_path / "b", goal="targeted:2", budget=200)
    rows = reached(benchmark, "flip")
    assert rows
    assert (case.victim(benchmark.read(rows)).argmax(1) == 2).all()
    assert all(row["label"] != 2 and row["predicted"] == 2 for row in rows)
    assert "targeted:2: the model predicts that class" in (benchmark.folder / "README.md").read_text()


@pytest.mark.parametrize("policy", ["belief", "auto"])
@pytest.mark.parametrize("rank", RANKS)
def test_any_policy_makes_every_level(policy: str, rank: int, tmp_path: Path):
    """Including a policy that continues after its first flip."""
    case = Case(rank, n=3)
    benchmark = case.make(tmp_path / "b", policy=policy, ladder="times:1.5,2", format="npz", chunk=4, steps=20)
    assert dict(case.victim.rows) == {phase: count for phase, count in counted(benchmark).items() if count}
    assert len(reached(benchmark, "flip")) == 2
    assert any(reached(benchmark, level) for level in benchmark.ladder.names[1:])
    assert verify_benchmark(benchmark, {"exact": case.victim}).holds


@pytest.mark.parametrize("until", ["flip", "budget"])
def test_levels_follow_the_best_flip_of_a_belief(until: str, tmp_path: Path):
    benchmark = Case(n=3).make(tmp_path / "b", policy="belief", until=until, ladder="times:1.5")
    flips = {row["place"]: row["l2"] for row in reached(benchmark, "flip")}
    rows = reached(benchmark, "x1.5")
    assert rows
    assert all(0.94 * 1.5 <= row["l2"] / flips[row["place"]] <= 1.5 + 1e-3 for row in rows)


def test_levels_of_absolute_distance_are_not_exceeded(tmp_path: Path):
    benchmark = Case(n=4).make(tmp_path / "b", ladder="l2:0.8,1.6", steps=20)
    for level, value in zip(benchmark.ladder.names[1:], benchmark.ladder.values, strict=True):
        for row in reached(benchmark, level):
            assert row["level_value"] == value
            assert row["l2"] <= value * (1 + 1e-4)


def test_a_set_reads_as_any_other_folder_of_images(tmp_path: Path):
    benchmark = made_once(tmp_path)
    batch = load(benchmark.folder / "exact" / "flip")
    rows = {Path(row["file"]).name: row for row in reached(benchmark, "flip")}
    assert len(batch) == len(rows)
    for name, label, x in zip(batch.ids, batch.y.tolist(), batch.x, strict=True):
        row = rows[Path(name).name]
        assert label == row["label"]
        assert torch.equal(x, benchmark.read([row])[0])


def test_a_set_of_signals_reads_with_its_labels(tmp_path: Path):
    case = Case(1)
    case.batch = replace(case.batch, bounds=UNBOUNDED, unit="mV", rate=100.0)
    victim = exact_victim(1, bounds=UNBOUNDED)
    benchmark = case.make(tmp_path / "b", victim=victim, palette=["gaussian_noise@0.3,0.6"])
    batch = load(benchmark.folder / "exact" / "flip.npz", kind="signal")
    rows = reached(benchmark, "flip")
    assert batch.y.tolist() == [row["label"] for row in rows]
    assert torch.equal(batch.x, benchmark.read(rows))


def test_a_benchmark_without_a_flip_is_refused(tmp_path: Path):
    case = planted(2, n=3)
    with pytest.raises(NothingFlipped):
        make_benchmark(
            {"planted": case.victim}, case.batch, tmp_path / "b", palette=["gaussian_noise@0.001"], patch=2, budget=3
        )
    assert not (tmp_path / "b" / "metadata.parquet").exists()


@pytest.mark.parametrize(
    ("names", "wrong", "error", "sentence"),
    [
        (["exact"], {"ladder": "times:2,1.5"}, InputError, "put the mildest first"),
        (["exact"], {"goal": "below:0.2"}, OptionError, "expected goal untargeted or targeted"),
        ([], {}, OptionError, "at least one model"),
        (["../x"], {}, OptionError, "cannot be a folder name"),
    ],
)
def test_bad_input_is_refused_before_any_query(
    names: list[str], wrong: dict[str, Any], error: type[InputError], sentence: str, tmp_path: Path
):
    case = Case()
    with pytest.raises(error, match=sentence):
        make_benchmark(dict.fromkeys(names, case.victim), case.batch, tmp_path / "b", **OPTIONS | {"patch": 2} | wrong)
    assert not case.victim.rows
    assert not (tmp_path / "b").exists()


def test_names_of_models_become_folders():
    assert folder_name("demo:digits") == "demo-digits"
    assert folder_name("demo:digits", ["demo-digits"]) == "demo-digits-2"
    assert folder_name("https://user:word@host/predict") == "host-predict"
    assert folder_name(__file__) == "test_make.py"


def test_the_card_and_the_manifest_describe_the_benchmark(tmp_path: Path):
    benchmark = made_once(tmp_path)
    card, manifest = (
        (benchmark.folder / "README.md").read_text(),
        json.loads((benchmark.folder / "manifest.json").read_text()),
    )
    for word in ("`times:1.5,2`", "gaussian_noise@0.3", "| x1.5 |", "Make it again", "Licence", "| seed | 3 |"):
        assert word in card
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["outputs"] == 3
    assert f"{sum(counted(benchmark).values()):,}" in card


def test_an_agent_is_identified_by_its_file(tmp_path: Path):
    file = tmp_path / "agent.safetensors"
    file.write_bytes(b"one")
    first = agent_fingerprint(f"{file}(most=2)")
    assert first == agent_fingerprint(str(file))
    file.write_bytes(b"two")
    assert agent_fingerprint(str(file)) != first
    assert agent_fingerprint("square") == agent_fingerprint("") == ""
    assert versions(str(file))["agent"] == agent_fingerprint(str(file))
    assert "agent" not in versions("square")
