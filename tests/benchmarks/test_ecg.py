"""The parts of the ECG benchmark that can be checked by hand: sampling, measuring, packing, keeping."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import beats as packed
from benchmarks import data
from benchmarks.ecg import cases, held_out, smooth_pgd
from benchmarks.ecg import run as ecg
from benchmarks.raw import Raw
from benchmarks.tables import Results, tables_in
from benchmarks.victims import BEAT_NETS, beat_victim, train_beats
from benchmarks.victims.beat_nets import beat_cnn
from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.wfdb_records import SPLITS
from rlab.filters import FAMILIES
from rlab.filters.palette import Palette
from rlab.training.directions import PriorOptions
from rlab.victims.torch_module import TorchVictim

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
    rows = packed.balanced(y, torch.ones(93, dtype=torch.bool), 30, seed=0)
    assert Counter(y[rows].tolist()) == {0: 14, 1: 3, 2: 13}
    assert len(set(rows)) == 30
    assert rows == packed.balanced(y, torch.ones(93, dtype=torch.bool), 30, seed=0)
    assert rows != packed.balanced(y, torch.ones(93, dtype=torch.bool), 30, seed=1)
    y, among = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([True, False, True, False, False, False])
    assert sorted(packed.balanced(y, among, 6, seed=0)) == [0, 2]  # only among the chosen


def test_records_split_without_a_patient_on_both_sides() -> None:
    batch = batch_of([0, 1, 2, 0], ["119", "101", "223", "106"])
    held, rest = (packed.of_records(batch, ("119", "223"), others) for others in (False, True))
    assert packed.records(held) == ["119", "223"]
    assert packed.records(rest) == ["101", "106"]


def test_packed_beats_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLAB_REAL", str(tmp_path))
    with pytest.raises(data.Absent):
        packed.beats("test", tmp_path)
    batch = batch_of([0, 2, 1])
    packed.write(batch, tmp_path / "beats_test.npz")
    again = packed.beats("test", tmp_path)
    assert torch.equal(again.x, batch.x)
    assert torch.equal(again.y, batch.y)
    assert again.masks is not None
    assert (again.ids, again.classes, again.unit, again.rate) == (batch.ids, CLASSES, "mV", 360.0)
    assert again.bounds == UNBOUNDED


def test_patients_and_classes_count_by_the_root_of_their_beats() -> None:
    batch = batch_of([0] * 16 + [2] * 4 + [3] * 2 + [0] * 9, ["208"] * 22 + ["101"] * 9)
    weights = train_beats.sampling_weights(batch)
    masses = [float(weights[rows].sum()) for rows in (slice(0, 16), slice(16, 20), slice(20, 22), slice(22, 31))]
    assert masses == pytest.approx([4, 2, 2 / 4, 3])  # F is as likely as the patient's N


def test_beats_are_moved_and_stretched_but_not_changed_otherwise() -> None:
    torch.manual_seed(0)
    line = torch.linspace(0, 1, 41).expand(64, 2, -1)
    plain = partial(train_beats.varied, lead=0.0, upside_down=0.0, noise=0.0)
    assert torch.equal(plain(line, 0.0, 0.0), line)
    assert torch.equal(plain(line, 0.0, 0.0, upside_down=1.0), -line)
    moved = plain(line, 3.0, 0.0)
    assert torch.allclose(moved[:, :, 20] - 0.5, (moved[:, :, 21] - 0.525), atol=1e-5)  # a line stays a line
    assert 2.0 < float((moved[:, 0, 20] - 0.5).std()) * 40 < 4.0
    stretched = plain(line, 0.0, 0.1)
    assert torch.allclose(stretched[:, :, 20], torch.tensor(0.5), atol=1e-5)
    assert stretched.min() >= 0
    assert stretched.max() <= 1
    other = plain(torch.ones(8, 1, 40), 0.0, 0.0, lead=0.15)  # another lead keeps a level line level
    assert torch.allclose(other, other[..., :1].expand_as(other), atol=1e-5)
    assert float(other[:, 0, 0].std()) > 0.05


def test_quality_by_hand() -> None:
    y, predicted = torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 0, 2])
    q = train_beats.Quality.of(y, predicted, 5)
    assert q.confusion[:3, :3].tolist() == [[3, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert q.accuracy == pytest.approx(5 / 7)
    assert q.recall[:3].tolist() == pytest.approx([3 / 4, 1 / 2, 1])
    assert q.recall[3].isnan()
    assert q.f1.tolist() == pytest.approx([6 / 8, 2 / 4, 1, 0, 0])
    assert q.macro(3) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert q.macro() == pytest.approx((3 / 4 + 1 / 2 + 1) / 5)


def test_each_third_of_the_patients_is_left_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [record for fold in train_beats.FOLDS for record in fold]
    assert set(named) == SPLITS["train"]
    assert len(named) == len(set(named))
    batch = batch_of([0] * len(named), named)
    fitted: list[set[str]] = []

    def fit(net: nn.Module, batch: Batch, steps: int, device: str) -> nn.Module:
        fitted.append(set(packed.records(batch)))
        return nn.Sequential(nn.Flatten(), nn.Linear(40, 5))

    monkeypatch.setattr(train_beats, "fit", fit)
    monkeypatch.setattr(train_beats, "_rest", lambda net: net)
    train_beats.train("cnn", batch, 30, 0, "cpu")
    assert fitted == [*(set(named) - set(fold) for fold in train_beats.FOLDS), set(named)]


def test_the_offset_is_the_one_that_mends_a_bias() -> None:
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    z = torch.eye(5)[y] * 2.0 - torch.tensor([2.2, 0, 0, 0, 0])  # N is scored too low
    assert train_beats.Quality.of(y, z.argmax(1), 5).macro(3) < 1
    added, reached = train_beats.offset(y, z)
    assert reached == 1
    assert added[0] > 0.2


def test_smooth_pgd_finds_the_nearest_smooth_flip_of_a_linear_model() -> None:
    torch.manual_seed(0)
    weight, margin = torch.randn(60), 1.5
    last = nn.Linear(60, 2)
    with torch.no_grad():
        last.weight.copy_(torch.stack([weight, torch.zeros(60)]))
        last.bias.copy_(torch.tensor([margin, 0.0]))
    victim = TorchVictim(nn.Sequential(nn.Flatten(), last), outputs="logits", bounds=UNBOUNDED)
    found = smooth_pgd.smooth_pgd_min(victim, torch.zeros(2, 1, 60), torch.tensor([0, 1]))
    pull = smooth_pgd.smoothed(weight.view(1, 1, -1))  # what a unit of theta does to the margin
    bound = margin / pull.abs().sum()
    want = float((bound * smooth_pgd.smoothed(pull.sign())).norm())
    assert float(found[0]) == pytest.approx(want, rel=0.02)
    assert float(found[1]) < 1e-3  # wrong before anything is added


@pytest.mark.slow
def test_a_few_steps_of_training_learn_what_is_easy() -> None:
    batch = batch_of([0] * 40 + [2] * 40, ["101"] * 80)
    saw = torch.linspace(-2, 2, 40)
    batch.x[:] = torch.where((batch.y == 0)[:, None, None], saw, saw.abs()) + 0.1 * torch.randn(80, 1, 40)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Identity(), beat_cnn())  # takes any length
    train_beats.fit(net, batch, 20, "cpu")
    assert float((train_beats.scores(net, batch.x, "cpu").argmax(1) == batch.y).double().mean()) > 0.9


def test_saved_weights_are_found_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = BEAT_NETS["cnn"]().eval()
    train_beats.save(net, tmp_path / "beats_cnn.safetensors", {"steps": "1"})
    victim, x = beat_victim("cnn", folder=tmp_path), torch.randn(3, 1, 720)
    assert (tmp_path / "beats_cnn.safetensors").stat().st_size < 1_000_000
    with torch.no_grad():
        assert torch.allclose(victim(x), net((x + 0.3) / 0.5).log_softmax(1), atol=0.02)
    with pytest.raises(data.Absent):
        beat_victim("resnet", folder=tmp_path)


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


def traced(palette: tuple[str, ...], victim: TorchVictim, batch: Batch) -> ecg.Traced:
    return ecg.trace(cases.Case("attacks", "planted", "random", palette, 6, 30), victim, batch)


def test_loudness_is_measured_where_the_beat_flipped_and_every_row_is_counted() -> None:
    victim, batch = planted()
    found = traced(("contrast+@2", "lead_dropout@1"), victim, batch)
    assert found.outcome.rows == sum(victim.rows.values())
    won = found.outcome.succeeded
    assert won.any()
    signal = batch.x[won] - batch.x[won].mean(2, keepdim=True)
    want = 20 * torch.log10(signal.flatten(1).norm(dim=1).double() / found.outcome.l2[won])
    assert torch.allclose(found.snr[won], want, atol=1e-3)
    relative = found.outcome.l2[won] / batch.x[won].flatten(1).norm(dim=1)
    assert torch.allclose(found.relative[won], relative, atol=1e-5)
    assert (found.snr[won] >= found.snr_flip[won] - 1e-3).all()  # cleanup only gives back
    assert found.relative[~won].isnan().all()


def test_raw_numbers_hold_what_was_traced_and_medians_leave_out_what_was_not_flipped() -> None:
    run = traced(("contrast+@2",), *planted())
    assert ecg.Traced.from_numbers(run.numbers()).numbers() == run.numbers()
    assert len({case.name for case in cases.cases(cases.FULL)}) == len(list(cases.cases(cases.FULL)))
    found = run.median(torch.tensor([1.0, 2.0, 9.0, math.nan, math.nan, math.nan], dtype=torch.float64))
    assert found.value == 2
    assert 1 <= found.low <= found.high <= 9


def test_beats_are_sampled_from_those_the_victim_has_right() -> None:
    victim, batch = planted()
    batch.x[3:] *= 2  # louder than class 0 may be
    assert sorted(ecg.sample(victim, batch, 6).ids) == sorted(batch.ids[:3])


def test_the_palette_is_known_and_the_training_configuration_is_valid(root: Path) -> None:
    assert len(Palette.of(cases.PALETTE, 1, 1, 360.0, "mV")) >= len(cases.DISTORTIONS)
    config = PriorOptions.read(root / "agents" / "signals.yaml", device="cpu")
    assert not any(model.name.rpartition(":")[2] in BEAT_NETS for model in config.models)  # the victims stay unseen
    assert all((root / str(model.weights)).exists() for model in config.models)  # and the prior can be trained again
    assert config.validation is not None


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", BEAT_NETS)
def test_shipped_weights_reach_what_the_page_says(name: str, real: Path) -> None:
    assert (real / "mitdb").is_dir()
    test = packed.beats("test")
    few = test[list(range(0, len(test), 23))]
    found = train_beats.measure(beat_victim(name), few)
    said = Results.read("ecg").rows("Networks for beats")[name]["network accuracy"]
    assert found.accuracy == pytest.approx(float(said.strip("%")) / 100, abs=0.03)
    assert np.isfinite(found.macro())


def test_gains_count_the_faults_that_matter_only() -> None:
    """Noise costs the network before half of the beats, and hardening wins them back with every seed; a shift costs nothing."""

    def raw(noise: int) -> Raw:
        shift = {held_out.ALL: [5, 5, 5, 5], held_out.LAST: [1, 1, 1, 1]}
        half = {held_out.ALL: [5, 5, noise, noise], held_out.LAST: [1, 1, noise // 5, noise // 5]}
        chosen = {"noise": [1.0, 0.9, 0.8, 0.7, 0.5], "shift": [1.0] * 5}
        numbers = {"clean": [1, 1, 1, 1], "labels": [0, 1, 2, 2], "chosen": chosen}
        return Raw({**numbers, "reported": {"noise": half, "shift": shift}})

    found = {case: raw(0 if case.method in (held_out.BEFORE, "augment") else 5) for case in held_out.FULL}
    assert held_out.matters(found) == ["noise"]
    figures = held_out.held_out_figures(found)
    assert figures == pytest.approx(
        {
            "held_out_ours_gain": 50.0,
            "held_out_augment_gain": 0.0,
            "held_out_ours_gain_even": 100 / 3,  # one class of three
            "held_out_augment_gain_even": 0.0,
        }
    )
    _, rows = next(tables_in(held_out.held_out_section(found)))
    assert [row[3] for row in rows] == ["50.0% / 66.7%", "100.0% / 100.0%", "50.0% / 66.7%"]
    assert [row[5].split()[0] for row in rows] == ["75.0%", "100.0%", "75.0%"]


def test_no_filter_that_the_network_is_hardened_with_is_held_out() -> None:
    section = set(held_out.TRAINED) | {one.name for name in held_out.TRAINED for one in FAMILIES[name](1)}
    assert not section & {one.name for one in held_out.held_out()}
