"""The parts of the ECG benchmark that can be checked by hand: sampling, measuring, packing, keeping."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import common, ecg, pack_ecg, train_ecg
from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.training.directions import PriorOptions
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo.ecg import BEAT_NETS

CLASSES = ("N", "S", "V", "F", "Q")


def batch_of(labels: list[int], records: list[str] | None = None) -> Batch:
    """Beats of 40 samples, louder with their label."""
    torch.manual_seed(0)
    y = torch.tensor(labels)
    x = torch.randn(len(y), 1, 40) + y[:, None, None]
    ids = tuple(f"{(records or ['100'] * len(y))[i]}:{i:06d}" for i in range(len(y)))
    masks = torch.zeros(len(y), 40, dtype=torch.bool)
    return Batch(x, y, ids=ids, bounds=UNBOUNDED, classes=CLASSES, masks=masks, unit="mV", rate=360.0)


def test_classes_are_evened_out_and_the_rest_makes_up_for_a_rare_one() -> None:
    y = torch.tensor([0] * 50 + [1] * 3 + [2] * 40)
    rows = pack_ecg.evened(y, torch.ones(93, dtype=torch.bool), 30, (0, 1, 2), seed=0)
    assert Counter(y[rows].tolist()) == {0: 14, 1: 3, 2: 13}
    assert len(set(rows)) == 30
    assert rows == pack_ecg.evened(y, torch.ones(93, dtype=torch.bool), 30, (0, 1, 2), seed=0)
    assert rows != pack_ecg.evened(y, torch.ones(93, dtype=torch.bool), 30, (0, 1, 2), seed=1)


def test_only_rows_among_the_chosen_are_drawn() -> None:
    y, among = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([True, False, True, False, False, False])
    assert sorted(pack_ecg.evened(y, among, 6, (0, 1, 2), seed=0)) == [0, 2]


def test_records_split_without_a_patient_on_both_sides() -> None:
    batch = batch_of([0, 1, 2, 0], ["119", "101", "223", "106"])
    held, rest = (pack_ecg.of_records(batch, ("119", "223"), others) for others in (False, True))
    assert pack_ecg.records(held) == ["119", "223"]
    assert pack_ecg.records(rest) == ["101", "106"]


def test_packed_beats_come_back_as_they_were(tmp_path: Path) -> None:
    batch = batch_of([0, 2, 1])
    pack_ecg.write(batch, tmp_path / "mitdb_test.npz")
    again = pack_ecg.beats("test", tmp_path)
    assert torch.equal(again.x, batch.x)
    assert torch.equal(again.y, batch.y)
    assert again.masks is not None
    assert (again.ids, again.classes, again.unit, again.rate) == (batch.ids, CLASSES, "mV", 360.0)
    assert again.bounds == UNBOUNDED


def test_without_packed_beats_or_records_it_says_where_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLAB_REAL", str(tmp_path))
    with pytest.raises(common.Absent, match=r"mitdb is not below .* set RLAB_REAL"):
        pack_ecg.beats("test", tmp_path)


def test_patients_and_classes_count_by_the_root_of_their_beats() -> None:
    batch = batch_of([0] * 16 + [2] * 4 + [3] * 2 + [0] * 9, ["208"] * 22 + ["101"] * 9)
    weights = train_ecg.sampling_weights(batch)
    masses = [float(weights[rows].sum()) for rows in (slice(0, 16), slice(16, 20), slice(20, 22), slice(22, 31))]
    assert masses == pytest.approx([4, 2, 2 / 4, 3])  # F is as likely as the patient's N


def test_beats_are_moved_and_stretched_but_not_changed_otherwise() -> None:
    torch.manual_seed(0)
    line = torch.linspace(0, 1, 41).expand(64, 2, -1)
    assert torch.equal(train_ecg.varied(line, 0.0, 0.0), line)
    moved = train_ecg.varied(line, 3.0, 0.0)
    assert torch.allclose(moved[:, :, 20] - 0.5, (moved[:, :, 21] - 0.525), atol=1e-5)  # a line stays a line
    assert 2.0 < float((moved[:, 0, 20] - 0.5).std()) * 40 < 4.0
    stretched = train_ecg.varied(line, 0.0, 0.1)
    assert torch.allclose(stretched[:, :, 20], torch.tensor(0.5), atol=1e-5)
    assert stretched.min() >= 0
    assert stretched.max() <= 1


def test_quality_by_hand() -> None:
    y, predicted = torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 0, 2])
    q = train_ecg.Quality.of(y, predicted, 5)
    assert q.confusion[:3, :3].tolist() == [[3, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert q.accuracy == pytest.approx(5 / 7)
    assert q.recall[:3].tolist() == pytest.approx([3 / 4, 1 / 2, 1])
    assert q.recall[3].isnan()
    assert q.f1.tolist() == pytest.approx([6 / 8, 2 / 4, 1, 0, 0])
    assert q.macro(3) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert q.macro() == pytest.approx((3 / 4 + 1 / 2 + 1) / 5)


def test_the_first_training_never_sees_the_held_out_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of([0, 1, 2, 0, 1, 2], ["119", "201", "223", "101", "106", "109"])
    fitted: list[tuple[list[str], int]] = []

    def fit(
        net: nn.Module, batch: Batch, steps: int, most: int, watch: Batch | None, device: str
    ) -> list[tuple[int, float]]:
        fitted.append((pack_ecg.records(batch), steps))
        return [(10, 0.2), (20, 0.7), (30, 0.6)]

    monkeypatch.setattr(train_ecg, "fit", fit)
    _, steps, best = train_ecg.train("cnn", batch, 30, 0, "cpu")
    assert (steps, best) == (20, 0.7)
    assert fitted == [(["101", "106", "109"], 30), (pack_ecg.records(batch), 20)]


def test_a_few_steps_of_training_learn_what_is_easy() -> None:
    batch = batch_of([0] * 40 + [2] * 40, ["101"] * 80)
    saw = torch.linspace(-2, 2, 40)
    batch.x[:] = torch.where((batch.y == 0)[:, None, None], saw, saw.abs()) + 0.1 * torch.randn(80, 1, 40)
    torch.manual_seed(0)
    net = BEAT_NETS["cnn"]()
    train_ecg.fit(net, batch, 12, 12, None, "cpu")
    assert train_ecg.measure(train_ecg._victim(net, "cpu"), batch).accuracy > 0.95


def test_saved_weights_are_found_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = BEAT_NETS["cnn"]().eval()
    train_ecg.save(net, tmp_path / "ecg_cnn.safetensors", {"steps": "1"})
    victim, x = train_ecg.ecg_victim("cnn", folder=tmp_path), torch.randn(3, 1, 260)
    assert (tmp_path / "ecg_cnn.safetensors").stat().st_size < 1_000_000
    assert torch.allclose(victim(x), train_ecg._victim(net, None)(x), atol=0.02)
    with pytest.raises(common.Absent, match=r"ecg_resnet\.safetensors is not in .* train it with"):
        train_ecg.ecg_victim("resnet", folder=tmp_path)


class Loud(nn.Module):
    """Class 0 while the mean square is below 1, else class 1: (b, 1, t) -> (b, 5)."""

    def forward(self, x: Tensor) -> Tensor:
        over = 10 * (x.square().mean((1, 2)) - 1)
        rest = torch.full((len(x), 3), -50.0)
        return torch.cat([torch.stack([-over, over], 1), rest], 1)


def planted() -> tuple[TorchVictim, Batch]:
    torch.manual_seed(1)
    batch = batch_of([0] * 6)
    batch.x[:] = 0.9 * torch.sin(torch.arange(40.0) / 4)
    return TorchVictim(Loud(), outputs="logits", bounds=UNBOUNDED), batch


def bench(test: Batch, **options: object) -> ecg.Bench:
    known = {"agent": None, "seen": (), "samples": 6, "alone": 6, "budget": 30, "seed": 0, "device": "cpu"}
    return ecg.Bench(**(known | {"fresh": False, "quick": False, "test": test} | options))  # type: ignore[arg-type]


def test_loudness_is_measured_where_the_beat_flipped_and_every_row_is_counted() -> None:
    victim, batch = planted()
    traced = bench(batch).run("planted", victim, batch, "random", ["contrast+@2", "lead_dropout@1"], 30)
    assert traced.outcome.rows == sum(victim.rows.values())
    won = traced.outcome.succeeded
    assert won.any()
    signal = batch.x[won] - batch.x[won].mean(2, keepdim=True)
    want = 20 * torch.log10(signal.flatten(1).norm(dim=1).double() / traced.outcome.l2[won])
    assert torch.allclose(traced.snr[won], want, atol=1e-3)
    relative = traced.outcome.l2[won] / batch.x[won].flatten(1).norm(dim=1)
    assert torch.allclose(traced.relative[won], relative, atol=1e-5)
    assert (traced.snr[won] >= traced.snr_flip[won] - 1e-3).all()  # cleanup only gives back
    assert traced.relative[~won].isnan().all()


def test_what_is_kept_is_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RAW", tmp_path)
    victim, batch = planted()
    one = bench(batch)
    first = one.keep("planted", victim, batch, "random", ["contrast+@2"], 30)
    before = sum(victim.rows.values())
    again = one.keep("planted", victim, batch, "random", ["contrast+@2"], 30)
    assert sum(victim.rows.values()) == before
    assert again.plain() == first.plain()
    one.keep("planted", victim, batch, "random", ["contrast+@3"], 30)
    assert len(list(tmp_path.glob("*.json"))) == 2  # another palette is another result


def test_an_agent_is_never_taken_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RAW", tmp_path)
    victim, batch = planted()
    bench(batch, agent="random").keep("planted", victim, batch, "random", ["contrast+@2"], 30)
    assert not list(tmp_path.iterdir())


def test_medians_leave_out_what_was_not_flipped() -> None:
    victim, batch = planted()
    traced = bench(batch).run("planted", victim, batch, "random", ["contrast+@2"], 30)
    values = torch.tensor([1.0, 2.0, 9.0, math.nan, math.nan, math.nan], dtype=torch.float64)
    found = traced.median(values, 0)
    assert found.value == 2
    assert 1 <= found.low <= found.high <= 9


def test_beats_are_sampled_from_those_the_victim_has_right() -> None:
    victim, batch = planted()
    batch.x[3:] *= 2  # louder than class 0 may be
    assert sorted(bench(batch).sample(victim, 6).ids) == sorted(batch.ids[:3])


def test_a_missing_default_agent_is_left_out_and_a_wrong_name_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecg, "shipped", lambda: ["images"])
    assert ecg.available("auto") is None
    assert ecg.available("square") == "square"
    with pytest.raises(InputError):
        ecg.available(str(tmp_path / "none.safetensors"))


def test_which_victims_an_agent_saw_is_read_from_what_it_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{"name": "rlab.victims.zoo:beat_resnet"}, {"name": "benchmarks.nets:resnet20"}]
    monkeypatch.setattr(ecg, "card", lambda name: {"config": {"models": models}})
    assert ecg.trained_on("auto") == ["resnet"]
    assert ecg.trained_on("square") == []


def test_the_palette_is_known_and_the_training_configuration_is_valid(root: Path) -> None:
    assert len(Palette.of(ecg.PALETTE, 1, 1, 360.0, "mV")) >= len(ecg.DISTORTIONS)
    config = PriorOptions.read(root / "agents" / "signals.yaml", device="cpu")
    used = {model.name.removeprefix("rlab.victims.zoo:beat_") for model in config.models}
    assert used < set(BEAT_NETS)  # at least one stays unseen
    assert config.validation is not None


@pytest.mark.real
@pytest.mark.parametrize("name", BEAT_NETS)
def test_shipped_weights_reach_what_the_page_says(name: str, real: Path, root: Path) -> None:
    test = pack_ecg.beats("test")
    few = test[list(range(0, len(test), 23))]
    found = train_ecg.measure(train_ecg.ecg_victim(name), few)
    said = (root / "benchmarks" / "results" / "ecg_victims.md").read_text()
    row = next(line for line in said.splitlines() if line.startswith(f"| {name} |"))
    assert found.accuracy == pytest.approx(float(row.split("|")[3].strip(" %")) / 100, abs=0.03)
    assert np.isfinite(found.macro())
