"""The result of an attack: its figures, its parts, and the round trip to disk."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import tensor

import rlab
from rlab.data.batch import UNBOUNDED
from rlab.errors import FolderError
from rlab.progress import Tally
from rlab.results.result import AttackResult, Setting, Status, to_rows
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.storage import files
from rlab.storage.run_file import RUN
from rlab.victims.zoo import demo_victim
from tests.helpers import assert_same
from tests.results.plots.fixtures import CASES, Recipe, make_result

KINDS = ["signal beat", "signal multilabel", "image digits", "image multilabel", "video", "nothing flipped"]
KINDS += ["every way to end"]


@pytest.mark.parametrize("kind", KINDS)
def test_load_is_the_inverse_of_save(kind: str, tmp_path: Path) -> None:
    result = make_result(CASES[kind])
    assert result.save(tmp_path / "run") == tmp_path / "run"
    loaded = AttackResult.load(tmp_path / "run")
    assert_same(loaded, result)
    names = ["arrays.safetensors", "report.json", "samples.parquet"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names


@pytest.mark.parametrize("bounds", [(0.0, 1.0), UNBOUNDED, (-math.inf, 3.5), (0.0, 255.0)])
def test_a_setting_survives_json(bounds: tuple[float, float]) -> None:
    setting = Setting((4, 8), (2, 2), ("a@1", "b@2"), "untargeted", "random", 9, bounds, -3, ("x", "ü"), "mV", 360.0)
    assert Setting.from_json(setting.to_json()) == setting
    assert "Infinity" not in setting.to_json()
    assert len(setting.grid) == 8


def test_join_and_where() -> None:
    result = make_result(CASES["image digits"])
    parts = [result.where(torch.arange(at, min(at + 7, len(result)))) for at in range(0, len(result), 7)]
    assert [len(part) for part in parts] == [7, 7, 7, 3]
    assert_same(AttackResult.join(parts), result)
    some = result.where(tensor([5, 2]))
    assert some.ids == ("sample 5", "sample 2")
    assert some.status == (result.status[5], result.status[2])
    assert torch.equal(some.final["l2"], result.final["l2"][[5, 2]])


def hand_made() -> AttackResult:
    """Four samples: two flipped, one not, one skipped."""
    made = make_result(Recipe((4,), (2,), n=4, k=2, classes=(), status=tuple(Status)[:1]))
    return replace(
        made,
        status=(Status.SUCCEEDED, Status.SPENT, Status.SKIPPED, Status.SUCCEEDED),
        queries=tensor([[10, 4, 1, 0], [99, 0, 0, 0], [1, 0, 0, 0], [20, 6, 1, 0]]),
        flip=dict(made.flip) | {"l2": tensor([2.0, math.nan, math.nan, 3.0])},
        final=dict(made.final) | {"l2": tensor([1.0, 9.0, 0.0, 2.0]), "l0_patches": tensor([1.0, 2.0, 0.0, 2.0])},
        assignment=tensor([[1, 0], [1, 2], [0, 0], [2, 1]], dtype=torch.uint8),
        improvements=(((3, 2.0), (12, 1.0)), (), (), ((20, 3.0), (26, 2.0))),
    )


def test_the_figures_by_hand() -> None:
    result = hand_made()
    assert result.succeeded.tolist() == [True, False, False, True]
    assert result.attacked.tolist() == [True, True, False, True]
    assert result.effort.tolist() == [14, 99, 1, 26]  # verification is not effort, but is counted in all
    figures = result.summary()
    known: dict[str, float] = {"samples": 4, "attacked": 3, "succeeded": 2, "queries": 142, "median_queries": 20}
    known |= {"mean_queries": 20, "median_search": 15, "median_l2_flip": 2.5, "median_l2": 1.5}
    known |= {"median_patches": 1.5, "mean_l2": 1.5}
    assert {name: figures[name] for name in known} == known
    assert figures["success"] == pytest.approx(2 / 3)
    assert {"flipped, verified: 2 of 3 (66.7%)", "status: 2 flipped, 1 held, 1 skipped because already wrong"} <= set(
        str(result).splitlines()
    )
    tally = result.tally()
    assert (tally.done, tally.flipped, tally.resisted, tally.skipped, tally.failed) == (4, 2, 1, 1, 0)
    rows = [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]  # where the inputs are distorted
    assert result.masks.int().tolist() == rows


def test_the_anytime_view_by_hand() -> None:
    result = hand_made()
    assert result.best_within(11).tolist() == [2.0, math.inf, math.inf, math.inf]
    assert result.best_within(26).tolist() == [1.0, math.inf, math.inf, 2.0]
    figures = result.summary()
    assert figures["median_queries_flip"] == 11.5
    within = [figures[f"median_within_{q}"] for q in (5, 20, 50, 200)]
    assert within == [math.inf, 3.0, 2.0, 2.0]  # of three attacked, the one that never flipped is infinite
    shown = {5: "∞", 20: "3", 50: "2", 200: "2"}
    assert {f"L2 within {q} queries: {far}" for q, far in shown.items()} <= set(str(result).splitlines())
    short = replace(result, setting=replace(result.setting, budget=20, distance="l0"))
    assert [line for line in str(short).splitlines() if "within" in line] == ["points changed within 5 queries: ∞"]
    lost = replace(result, status=(Status.UNVERIFIED, *result.status[1:]))
    assert lost.best_within(26).tolist() == [math.inf, math.inf, math.inf, 2.0]  # a flip that did not hold is none


@pytest.mark.parametrize(("bounds", "unit"), [(UNBOUNDED, " mV"), ((-5.0, 5.0), "")])
def test_distances_of_bounded_data_have_no_unit(bounds: tuple[float, float], unit: str) -> None:
    result = hand_made()
    told = str(replace(result, setting=replace(result.setting, unit="mV", bounds=bounds))).splitlines()
    assert f"L2 at first flip: 2.5{unit}" in told
    assert any(line.startswith(f"L2 in the end: 1.5{unit} (") for line in told)
    assert "SNR: ∞ dB" in told


def test_figures_without_attacked_samples_are_nan() -> None:
    figures = make_result(CASES["nothing attacked"]).summary()
    assert figures["attacked"] == figures["succeeded"] == 0
    assert math.isnan(figures["success"])
    assert math.isnan(figures["median_queries"])
    assert "0 of 0" in str(make_result(CASES["nothing attacked"]))


def test_a_row_holds_all_facts_of_a_sample() -> None:
    row = to_rows(hand_made())[0]
    assert row["status"] == "succeeded"
    assert (row["queries_search"], row["queries_cleanup"], row["queries_verify"]) == (10, 4, 1)
    assert (row["flip_l2"], row["final_l2"]) == (2, 1)
    needed = {"id", "label", "predicted_before", "predicted_after", "scores_before", "scores_after", "seed"}
    assert needed <= row.keys()


def test_saving_does_not_overwrite(tmp_path: Path) -> None:
    result = make_result(CASES["one sample"])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place in ("there", "file"):
        with pytest.raises(FolderError):
            result.save(tmp_path / place)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["thesis.txt"]
    (tmp_path / "empty").mkdir()
    result.save(tmp_path / "empty")


def cut_arrays(folder: Path) -> None:
    whole = (folder / files.ARRAYS).read_bytes()
    (folder / files.ARRAYS).write_bytes(whole[: len(whole) // 2])


def double_rows(folder: Path) -> None:
    files.write_rows(folder / files.SAMPLES, files.read_rows(folder / files.SAMPLES) * 2, "")


def no_improvements(folder: Path) -> None:
    rows = files.read_rows(folder / files.SAMPLES)
    files.write_rows(folder / files.SAMPLES, [{**row, "improved_at": [], "improved_to": []} for row in rows], "")


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (shutil.rmtree, "is not a run folder of an attack"),
    (lambda folder: (folder / files.SAMPLES).unlink(), "is not a run folder"),
    (lambda folder: (folder / files.SAMPLES).rename(folder / RUN), "is not finished: run its command again"),
    (cut_arrays, "cannot read"),
    (double_rows, "2 rows but 1 arrays"),
    (lambda folder: files.write_rows(folder / files.SAMPLES, [{"l2_penalty": 3}], ""), "is damaged"),
    (lambda folder: files.write_arrays(folder / files.ARRAYS, {"assignment": torch.zeros(1, 1)}, ""), "cannot read"),
    (no_improvements, "a flip has no distance"),
]


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES)
def test_damaged_folders_are_refused(damage: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    make_result(CASES["one sample"]).save(tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(FolderError, match=sentence):
        AttackResult.load(tmp_path / "run")


def test_r_peaks_and_leads_survive_a_round_trip(tmp_path: Path) -> None:
    result = make_result(replace(CASES["signal beat"], n=3))
    marked = replace(result, r_peaks=((12, 200), (), (-5,)), setting=replace(result.setting, leads=("MLII", "V5")))
    marked.save(tmp_path / "run")
    loaded = AttackResult.load(tmp_path / "run")
    assert loaded.r_peaks == ((12, 200), (), (-5,))
    assert loaded.setting.leads == ("MLII", "V5")
    assert loaded.where(tensor([2, 0])).r_peaks == ((-5,), (12, 200))
    assert AttackResult.join([marked, result]).r_peaks == ((12, 200), (), (-5,), (), (), ())


@pytest.mark.parametrize("data", ["demo:digits", "demo:ecg"])
def test_improvements_end_at_the_stored_distance(data: str) -> None:
    """Also for signals without bounds, in their own unit; the progress bar never goes back."""
    tallies: list[Tally] = []
    batch = rlab.load(data, limit=2)
    attack = make_attack(batch, policy="random", budget=120)
    victim = demo_victim(data.removeprefix("demo:"))
    result = run_attack(attack, victim, batch, progress=lambda part: tallies.append(part.tally()))  # type: ignore[attr-defined]
    ended = [flips[-1][1] for flips in result.improvements if flips]
    assert ended == pytest.approx(result.final["l2"][result.succeeded].tolist(), rel=1e-4)
    assert len(tallies) > 2
    assert [tally.done for tally in tallies] == sorted(tally.done for tally in tallies)
    assert tallies[-1].done == 2
    assert tallies[-1].flipped == int(result.succeeded.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_one_sample_of_a_result(kind: str) -> None:
    result = make_result(CASES[kind])
    samples = list(result)
    assert len(samples) == len(result)
    for i, (sample, row) in enumerate(zip(samples, to_rows(result), strict=True)):
        assert (sample.id, sample.status, sample.queries) == (row["id"], row["status"], int(result.effort[i]))
        assert torch.equal(sample.x, result.original[i])
        assert torch.equal(sample.perturbed, result.perturbed[i])
        assert torch.equal(sample.mask, result.masks[i])
        assert sample.distance == float(result.best_within(10**9)[i])
        if isinstance(sample.label, int):
            classes = (sample.label, sample.predicted_before, sample.predicted_after)
            assert classes == (row["label"], row["predicted_before"], row["predicted_after"])
        else:
            assert sample.label == tuple(k for k, held in enumerate(row["label"]) if held)
    assert result[-1].id == result.ids[-1]
    assert_same(result[1:3], result.where(tensor([1, 2])))
    for wrong in (len(result), -len(result) - 1, "s0"):
        with pytest.raises(IndexError, match=f"from 0 to {len(result) - 1}, got {wrong!r}"):
            result[wrong]  # type: ignore[index]
    batch = rlab.Batch(result.original, result.labels, bounds=result.setting.bounds)
    for thing in (result, result[0], batch):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 300


def test_a_table_and_pictures() -> None:
    result = make_result(CASES["every way to end"])
    table = result.to_pandas()
    assert list(table["id"]) == list(result.ids)
    picture: Any = result.plot(-1)
    assert len(result.plot().axes) > len(picture.axes) > 0
    assert picture._repr_png_().startswith(b"\x89PNG")  # for notebooks
