"""Attacks compared: every row counted, other libraries' too; figures that can be checked by hand; the command."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import rlab
from rlab.comparison import (
    ATTACKS,
    AttackOutcome,
    CompareOptions,
    Comparison,
    Contender,
    Figures,
    LibraryContender,
    PolicyContender,
    compare,
    l2_ratio,
    parse_library_attack,
    queries_at_l2,
    query_ratio,
    ratio_at_equal_l2,
)
from rlab.comparison.page import comparison_page, comparison_tables, draw_curves
from rlab.comparison.recorder import QueryRecorder, run_recorded
from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.present.table import terminal
from rlab.runs.options import AttackOptions, RunOptions
from rlab.stats import median
from rlab.storage.files import write_rows
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim
from tests.command import rlab_command

BUDGET = 60


@pytest.fixture(scope="module")
def digits() -> Batch:
    return rlab.load("demo:digits")[:8]


class Brightness(nn.Module):
    """Class 1 once the mean is above 0.5: (b, c, h, w) -> (b, 2)."""

    def forward(self, x: Tensor) -> Tensor:
        over = 100 * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-over, over], 1)


@pytest.fixture
def bright() -> TorchVictim:
    return TorchVictim(Brightness(), outputs="logits")


def greys(*levels: float) -> Batch:
    """One 1x4x4 image a level, each with a pattern of its own that leaves the mean; labelled dark."""
    patterns = torch.stack([torch.eye(4).roll(i, 1) for i in range(4)]) - 0.25
    x = torch.stack([level + 0.4 * patterns[i] for i, level in enumerate(levels)])[:, None]
    return Batch(x, torch.zeros(len(levels), dtype=torch.int64))


def lighten(step: float) -> Any:
    """A library that adds `step` to the samples it still works on, all in one call."""

    def run(ask: QueryRecorder, rows: Tensor) -> None:
        x, y = ask.x, ask.y
        now, left = x.clone(), torch.arange(len(x))
        while len(left):
            now[left] = now[left] + step
            left = left[ask(now[left]).argmax(1) == y[left]]

    return run


def outcome(queries: Sequence[float], l2: Sequence[float | None], budget: int = 100) -> AttackOutcome:
    """None as the distance is a failure."""
    return AttackOutcome(
        attacked=torch.ones(len(queries), dtype=torch.bool),
        succeeded=torch.tensor([v is not None for v in l2]),
        queries=torch.tensor(queries, dtype=torch.int64),
        l2=torch.tensor([math.nan if v is None else v for v in l2], dtype=torch.float64),
        budget=budget,
        rows=int(sum(queries)),
    )


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 10])
def test_rows_of_each_sample_until_its_flip(bright: TorchVictim, together: int) -> None:
    found = run_recorded(bright, greys(0.36, 0.42, 0.48, 0.6), 20, lighten(0.03), together=together)
    assert found.attacked.tolist() == [True, True, True, False]  # the last is wrong to begin with
    assert found.queries.tolist() == [5, 3, 1, 0]
    assert found.succeeded.tolist() == [True, True, True, False]
    assert found.l2[:3].tolist() == pytest.approx([4 * 0.15, 4 * 0.09, 4 * 0.03], abs=1e-5)
    assert math.isnan(found.l2[3])
    assert bright.rows == {"search": 9, "verify": 4 + 3}
    assert found.rows == 16
    assert [[at for at, _ in flips] for flips in found.improvements] == [[5], [3], [1], []]


@pytest.mark.parametrize("together", [1, 10])
def test_no_row_beyond_the_budget(bright: TorchVictim, together: int) -> None:
    found = run_recorded(bright, greys(0.36, 0.42, 0.48), 3, lighten(0.03), together=together)
    assert found.queries.tolist() == [3, 3, 1]
    assert found.succeeded.tolist() == [False, True, True]
    assert found.charged.tolist() == [3, 3, 1]
    assert bright.rows["search"] == 7


def test_one_call_of_many_rows_is_cut_at_the_budget(bright: TorchVictim) -> None:
    found = run_recorded(bright, greys(0.1), 4, lambda ask, rows: ask(ask.x.repeat(50, 1, 1, 1)))
    assert bright.rows["search"] == 4
    assert found.queries.tolist() == [4]
    assert not found.succeeded.any()


def test_an_attack_that_gives_up_early_is_a_failure(bright: TorchVictim) -> None:
    found = run_recorded(bright, greys(0.1), 50, lambda ask, rows: ask(ask.x))
    assert found.queries.tolist() == [1]
    assert found.charged.tolist() == [50]


def test_a_minimiser_is_judged_by_its_nearest_flip(bright: TorchVictim) -> None:
    def run(ask: QueryRecorder, rows: Tensor) -> None:
        for step in (0.5, 0.2, 0.4, -0.1):
            ask((ask.x + step).clamp(0, 1))

    found = run_recorded(bright, greys(0.4), 50, run, until="budget")
    assert found.queries.tolist() == [4]  # all it spent, not only what led to the nearest
    assert found.l2.tolist() == pytest.approx([4 * 0.2], abs=1e-5)
    ((first, second),) = found.improvements  # the third flips too, but farther away
    assert [first[0], second[0]] == [1, 2]
    assert second[1] == pytest.approx(4 * 0.2, abs=1e-5)
    assert found.best_within(1).tolist() == pytest.approx([first[1]])
    assert first[1] > second[1]


@pytest.mark.parametrize("together", [1, 10])
def test_an_attack_that_ends_at_its_flip_may_be_reduced(bright: TorchVictim, together: int) -> None:
    found = run_recorded(bright, greys(0.36, 0.42), 20, lighten(0.03), together=together, reduce=True)
    assert found.queries.tolist() == [15, 13]  # ten halvings of the way
    assert found.l2.tolist() == pytest.approx([4 * 0.14, 4 * 0.08], abs=1e-3)
    assert bright.rows == {"search": 8, "cleanup": 20, "verify": 4}
    cut = run_recorded(bright, greys(0.36), 7, lighten(0.03), reduce=True)
    assert cut.queries.tolist() == [7]


def test_rows_that_could_be_anyones_are_refused(bright: TorchVictim) -> None:
    x = greys(0.1, 0.2).x
    recorder = QueryRecorder(bright, x, torch.zeros(2, dtype=torch.int64), 10, "flip", (0.0, 1.0))
    with pytest.raises(InputError, match="batch=1"):
        recorder(x.flip(0))


def test_bounds_other_than_the_unit_are_mapped(bright: TorchVictim) -> None:
    seen = TorchVictim(nn.Sequential(Scale(), Brightness()), outputs="logits", bounds=(0.0, 255.0))
    batch = Batch(greys(0.42).x * 255, torch.zeros(1, dtype=torch.int64), bounds=(0.0, 255.0))
    found = run_recorded(seen, batch, 20, lighten(0.03))
    assert found.queries.tolist() == [3]
    assert found.l2.tolist() == pytest.approx([4 * 0.09], abs=1e-4)


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 255


def test_policies_report_what_the_victim_counted(digits: Batch) -> None:
    victim = demo_victim("digits")
    found = PolicyContender(AttackOptions.model_validate({"policy": "random", "patch": 2}))(victim, digits, BUDGET, 0)
    assert found.rows == sum(victim.rows.values())
    right = int(found.attacked.sum())
    skipped = len(digits) - right
    assert int(found.queries.sum()) == victim.rows["search"] + victim.rows["cleanup"]
    assert int(found.queries[~found.attacked].sum()) == skipped  # the clean prediction
    assert torch.isnan(found.l2[~found.succeeded]).all()
    assert (found.l2[found.succeeded] > 0).all()
    assert found.best_within(BUDGET)[found.succeeded].tolist() == pytest.approx(found.l2[found.succeeded].tolist())
    assert max(len(flips) for flips in found.improvements) > 1  # cleanup came nearer step by step


# --- other libraries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"art:square"}))
def test_every_library_attack_counts_its_rows(name: str, digits: Batch) -> None:
    pytest.importorskip(name.split(":")[0])
    victim = demo_victim("digits")
    found = parse_library_attack(name)(victim, digits[:3], BUDGET, 0)
    assert found.rows == sum(victim.rows.values())
    assert int(found.queries.sum()) == victim.rows["search"]
    assert int(found.queries.max()) <= BUDGET
    assert victim.rows["verify"] == 3 + int(found.succeeded.sum())


def test_square_at_once_counts_what_the_library_counts(digits: Batch) -> None:
    torchattacks = pytest.importorskip("torchattacks")
    victim = demo_victim("digits")
    found = LibraryContender("torchattacks:square", 1.0, together=8)(victim, digits, BUDGET, 3)

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = victim.model

        def forward(self, x: Tensor) -> Tensor:
            assert victim.normalise is not None
            return self.inner(victim.normalise(x))

    right = found.attacked.nonzero().flatten()
    x, y = digits.x[right], digits.y[right]
    attack = torchattacks.Square(Plain().eval(), norm="L2", eps=1.0, n_queries=BUDGET - 2, seed=3 + int(right[0]))
    attack.init_hyperparam(x)
    with seeded_globals(attack.seed):
        own, _ = attack.attack_single_run(x.clone(), y)
    assert found.queries[right].tolist() == (own + 1).tolist()  # the library leaves out its clean prediction
    assert len(set(found.queries.tolist())) > 2  # samples end at different times, so rows had to be told apart


def test_square_one_by_one_and_at_once_agree_on_a_single_sample(digits: Batch) -> None:
    pytest.importorskip("torchattacks")
    for i in range(4):
        alone, crowd = (
            LibraryContender("torchattacks:square", 1.0, together)(demo_victim("digits"), digits[i : i + 1], BUDGET, 0)
            for together in (1, 500)
        )
        assert alone.queries.tolist() == crowd.queries.tolist()
        torch.testing.assert_close(alone.l2, crowd.l2, equal_nan=True)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_library_that_fails_is_named(digits: Batch) -> None:
    pytest.importorskip("art")
    with pytest.raises(InputError, match=r"art:square failed on inputs of shape \(1, 1, 8, 8\), leave it out"):
        parse_library_attack("art:square")(demo_victim("digits"), digits[:1], BUDGET, 0)  # needs larger images


def test_seeds_are_the_librarys_own(digits: Batch) -> None:
    pytest.importorskip("foolbox")
    victim = demo_victim("digits")
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    runs = [parse_library_attack("foolbox:gaussian_noise@2")(victim, digits, BUDGET, 1) for _ in "ab"]
    assert runs[0].queries.tolist() == runs[1].queries.tolist()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state(legacy=False)["state"]["key"].tolist()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("torchattacks:sqare", "Did you mean 'torchattacks:square'"),
        ("torchattacks:square@", "strength above 0"),
        ("torchattacks:square@-1", "strength above 0"),
        ("torchattacks:square@nan", "strength above 0"),
        ("foolbox:blur@3", "finds its strength itself"),
        ("pgd", "unknown attack"),
    ],
)
def test_attacks_that_are_not_valid(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_library_attack(spec)


def test_signals_are_refused_for_libraries() -> None:
    with pytest.raises(InputError, match="is for images"):
        parse_library_attack("torchattacks:square")(demo_victim("ecg"), rlab.load("demo:ecg")[:2], BUDGET, 0)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_by_hand() -> None:
    f = Figures.of(outcome([10, 20, 30, 40], [1.0, 2.0, None, 4.0], budget=100))
    assert (f.attacked, f.succeeded, f.success.value) == (4, 3, 0.75)
    assert f.queries.value == 30.0  # 10, 20, 40, 100
    assert f.queries_won.value == 20.0
    assert f.l2.value == 2.0
    assert f.queries.low <= f.queries.value <= f.queries.high
    assert f.success.low >= 0
    assert f.success.high <= 1


def test_distances_within_so_many_queries_by_hand() -> None:
    """No flip counts as infinite, and an outcome that kept no improvements has the one it ended with."""
    f = Figures.of(outcome([10, 20, 30, 40], [1.0, 2.0, None, 4.0], budget=100))
    assert {q: e.value for q, e in f.within.items()} == {5: math.inf, 20: math.inf, 50: 3.0, 200: 3.0}
    assert (f.within[50].low, f.within[50].high) == (1.0, math.inf)
    kept = replace(outcome([10, 20], [1.0, 2.0]), improvements=(((2, 5.0), (10, 1.0)), ((4, 3.0), (20, 2.0))))
    assert [Figures.of(kept).within[q].value for q in (5, 20)] == [4.0, 1.5]


def test_nothing_flipped_has_no_distance() -> None:
    f = Figures.of(outcome([100, 100], [None, None]))
    assert f.queries.value == 100
    assert math.isnan(f.l2.value)
    assert math.isnan(f.queries_won.value)


def test_median_leaves_out_nan_as_numpy_does() -> None:
    values = np.array([3.0, np.nan, 1.0, 8.0, np.nan, 5.0])
    rows = np.random.default_rng(0).integers(0, 6, (50, 6))
    with warnings.catch_warnings(action="ignore"):  # numpy warns of rows that are all NaN
        np.testing.assert_allclose(median(values, rows), np.nanmedian(values[rows], axis=1))


def test_intervals_narrow_with_samples_and_hold_the_truth() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for n in (20, 2000):
        values = draw.lognormal(3, 1, n)
        q = Figures.of(outcome([int(v) + 1 for v in values], [1.0] * n, budget=10**6)).queries
        widths.append(q.high - q.low)
        assert q.low <= 21 <= q.high  # exp(3), rounded as the draws are
    assert widths[1] < widths[0] / 4


def test_ratios_are_paired() -> None:
    ours = outcome([1, 10, 100, 1000], [1.0, 2.0, 3.0, 4.0], budget=10**6)
    other = outcome([3, 30, 300, 3000], [2.0, 4.0, 6.0, 8.0], budget=10**6)
    times = query_ratio(ours, other)
    assert (times.value, times.low, times.high) == (3.0, 3.0, 3.0)  # any draw gives 3 where the same samples are drawn
    assert l2_ratio(ours, other).value == 2.0


def test_ratios_need_the_same_samples() -> None:
    with pytest.raises(InputError, match="same samples"):
        query_ratio(outcome([1, 2], [1.0, 1.0]), outcome([1], [1.0]))


def test_queries_between_settings_are_log_interpolated() -> None:
    settings = [outcome([400] * 3, [1.0] * 3, 1000), outcome([100] * 3, [4.0] * 3, 1000)]
    assert queries_at_l2(settings, 2.0).value == pytest.approx(200)  # half way in logarithms
    assert queries_at_l2(settings[::-1], 1.0).value == pytest.approx(400)
    assert math.isnan(queries_at_l2(settings, 5.0).value)
    ours = outcome([20] * 3, [2.0] * 3, 1000)
    assert ratio_at_equal_l2(ours, settings).value == pytest.approx(10)
    assert math.isnan(ratio_at_equal_l2(outcome([20] * 3, [0.5] * 3, 1000), settings).value)
    with pytest.raises(InputError, match="two settings"):
        queries_at_l2(settings[:1], 2.0)


def test_a_middle_setting_bends_the_line() -> None:
    settings = [outcome([q] * 3, [d] * 3, 1000) for q, d in ((400, 1.0), (390, 2.0), (100, 4.0))]
    assert queries_at_l2(settings, 2.0).value == pytest.approx(390)
    assert queries_at_l2(settings, math.sqrt(2)).value == pytest.approx(math.sqrt(400 * 390))


def test_outcomes_survive_json() -> None:
    before = replace(outcome([10, 20], [1.25, None]), improvements=(((3, 2.5), (10, 1.25)), ()), distance="linf")
    after = AttackOutcome.from_plain(json.loads(json.dumps(before.plain())))
    assert after.plain() == before.plain()
    assert torch.isnan(after.l2[1])
    assert after.improvements == before.improvements
    assert before.first(1).queries.tolist() == [10]
    plain = {key: value for key, value in before.plain().items() if key not in ("improvements", "distance")}
    assert AttackOutcome.from_plain(plain).improvements == (((10, 1.25),), ())  # the final flip alone


# --- the whole --------------------------------------------------------------------------------------------------------


class Fixed(Contender):
    def __init__(self, found: AttackOutcome) -> None:
        self.found = found

    def __call__(self, victim: rlab.Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        return self.found


def test_no_column_of_a_comparison_is_cut_in_a_narrow_terminal(bright: TorchVictim) -> None:
    named: dict[str, Contender] = {
        f"square(share=0.{i}25)": Fixed(outcome([1000 + i, 2345], [2.125, 10.75])) for i in range(3)
    }
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in comparison_tables(compare(bright, greys(0.1, 0.2), named, 10_000, 0)):
        console.print(terminal(table))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "in all" in "".join(lines)
    assert "200 queries" in "".join(lines)
    assert all(line.rstrip()[-1] in "┓┃┩│┘" for line in lines)


def test_compare_saves_rows_and_curves(bright: TorchVictim, tmp_path: Path) -> None:
    named: dict[str, Contender] = {
        "ours": Fixed(outcome([10, 20], [2.0, 2.0])),
        "other@1": Fixed(outcome([100, 80], [None, 1.0])),
        "other@4": Fixed(outcome([40, 40], [4.0, 4.0])),
    }
    told: list[str] = []
    found = compare(bright, greys(0.1, 0.2), named, 100, 0, lambda name, one: told.append(name))
    assert told == list(named)
    assert found.settings() == {"other": ["other@1", "other@4"]}
    assert found.at_equal_l2("ours", "other")["queries"] == pytest.approx(math.sqrt(90 * 40))
    found.save(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "samples.parquet").to_pylist()
    with (tmp_path / "out" / "samples.csv").open() as file:
        text = list(csv.DictReader(file))
    assert len(table) == len(text) == 6
    assert table[2] | {"l2": None} == {
        "attack": "other@1", "id": "0", "attacked": True, "succeeded": False, "queries": 100, "l2": None,
        "within_5": math.inf, "within_20": math.inf, "within_50": math.inf, "within_200": math.inf,
        "improved_at": [], "improved_to": [],
    }  # fmt: skip
    assert (table[0]["improved_at"], table[0]["improved_to"]) == ([10], [2.0])
    assert [row["within_20"] for row in text] == ["2.0", "2.0", "inf", "inf", "inf", "inf"]
    assert [row["queries"] for row in text] == ["10", "20", "100", "80", "40", "40"]
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    again = Comparison.load(tmp_path / "out")
    assert comparison_tables(again) == comparison_tables(found)
    section = comparison_page(tmp_path / "out").sections[0]
    assert [block.kind for block in section.blocks] == ["charts", "table", "table", "text", "text"]


def test_a_folder_of_before_is_read(bright: TorchVictim, tmp_path: Path) -> None:
    """Those said neither how many rows reached the model nor how flips came nearer."""
    found = compare(bright, greys(0.1, 0.2), {"ours": Fixed(outcome([10, 20], [2.0, None]))}, 100, 7)
    columns = ("attack", "id", "attacked", "succeeded", "queries", "l2")
    records = [{column: record[column] for column in columns} for record in found.records()]
    write_rows(tmp_path / "samples.parquet", records, '{"budget": 100, "seed": 7}')
    again = Comparison.load(tmp_path)
    assert (again.ids, again.budget, again.seed) == (found.ids, 100, 7)
    assert again.outcomes["ours"].charged.tolist() == [10, 100]
    assert again.outcomes["ours"].improvements == (((10, 2.0),), ())
    assert [cell.value for cell in comparison_tables(again)[-1].cells[0]][-1] is None


def test_curves_end_at_the_success_rate(bright: TorchVictim) -> None:
    flips = (((4, 3.0), (10, 1.0)), ())
    named: dict[str, Contender] = {
        "half": Fixed(replace(outcome([10, 100], [1.0, None]), improvements=flips)),
        "both": Fixed(replace(outcome([20, 40], [1.0, 2.0]), improvements=(((8, 4.0), (20, 1.0)), ((40, 2.0),)))),
        "none": Fixed(outcome([100, 100], [None, None])),
    }
    found = compare(bright, greys(0.1, 0.2), named, 100)
    left, right = [ax for ax in draw_curves(found).axes if ax.get_gid() != "header"]
    (x, y), (_, both) = (np.asarray(line.get_data(), float) for line in left.lines)
    assert x.tolist() == [1, 4, 10, 100]
    assert y.tolist() == [0, 0.5, 0.5, 0.5]
    assert both.tolist() == [0, 0.5, 0.5, 1, 1]
    half, medians = (np.asarray(line.get_ydata(), float) for line in right.lines)
    assert (half > right.get_ylim()[1]).all()  # one of two is never flipped: the median stays above the axis
    assert medians[-2:].tolist() == [1.5, 1.5]
    assert (medians[:-2] > right.get_ylim()[1]).all()


def test_compare_refuses_what_cannot_be_compared(bright: TorchVictim) -> None:
    with pytest.raises(InputError, match="at least one attack"):
        compare(bright, greys(0.1), {}, 10)
    with pytest.raises(InputError, match="none of the samples right"):
        compare(
            bright,
            greys(0.6),
            {
                "random": PolicyContender(
                    AttackOptions.model_validate({"policy": "random", "palette": "illuminate@0.3", "patch": 1})
                )
            },
            10,
        )


FILE: dict[str, Any] = {
    "model": "demo:digits", "data": {"path": "demo:digits", "limit": 2}, "palette": ["dead_pixel"], "patch": 2,
    "budget": 99, "policy": "square", "accept": "always", "price": 0.3, "patience": 2, "cleanup": False, "seed": 4,
}  # fmt: skip


def test_a_file_of_an_attack_builds_the_same_attack(digits: Batch) -> None:
    assert CompareOptions.model_validate(FILE).build(digits) == RunOptions.model_validate(FILE).build(digits)


def test_names_become_contenders() -> None:
    attacks = ["torchattacks:square@1.0 art:simba", "foolbox:blur"]
    options = CompareOptions.model_validate(FILE | {"policies": "random, square(share=0.2,grow=2)", "attacks": attacks})
    assert options.policies == ("random", "square(share=0.2,grow=2)")
    options = CompareOptions.model_validate(FILE | {"policies": "random, square(share=0.2)", "attacks": attacks})
    contenders = options.contenders()
    assert list(contenders) == ["random", "square(share=0.2)", "torchattacks:square@1.0", "art:simba", "foolbox:blur"]
    random = contenders["random"]
    assert isinstance(random, PolicyContender)
    assert random.options == options.attack_options().model_copy(update={"policy": random.options.policy})
    assert list(CompareOptions.model_validate(FILE).contenders()) == ["auto", "square", "random"]
    with pytest.raises(InputError, match="unknown policy"):
        CompareOptions.model_validate(FILE | {"policies": "rando"}).contenders()
    with pytest.raises(InputError, match="untargeted, got the goal targeted:3"):
        CompareOptions.model_validate(FILE | {"attacks": attacks, "goal": "targeted:3"}).contenders()
    with pytest.raises(InputError, match="compared by L2, got the distance linf"):
        CompareOptions.model_validate(FILE | {"attacks": attacks, "distance": "linf"}).contenders()


def test_the_command(tmp_path: Path) -> None:
    pytest.importorskip("torchattacks")
    said = rlab_command(
        "compare", "demo:digits", "demo:digits", "--limit", 5, "--budget", BUDGET, "--policies", "random,square",
        "--attacks", "torchattacks:square@0.5 torchattacks:square@4", "--out", tmp_path / "out",
    )  # fmt: skip
    assert said.code == 0, said.err
    for words in ("random", "torchattacks:square@0.5", "success", "at the median L2", "the whole budget"):
        assert words in said.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "curves.png", "ledger.sqlite", "samples.csv", "samples.parquet",
    ]  # fmt: skip


def test_the_command_refuses_an_unknown_attack(tmp_path: Path) -> None:
    said = rlab_command("compare", "demo:digits", "demo:digits", "--limit", 2, "--attacks", "torchattacks:sqare")
    assert said.code == 2
    assert "Did you mean 'torchattacks:square'" in said.err


COMPARE = ["compare", "demo:digits", "demo:digits", "--limit", 5, "--budget", BUDGET]


def test_a_comparison_that_was_stopped_goes_on_and_is_the_same(tmp_path: Path) -> None:
    """The second attack is stopped at its first query; what the first found is not asked for again."""
    words = [*COMPARE, "--policies", "random,square"]
    run, asked = PolicyContender.__call__, list[str]()

    def noting(self: PolicyContender, *arguments: Any) -> AttackOutcome:
        asked.append(type(self.options.policy).__name__)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return run(self, *arguments)

    draw = mock.patch("rlab.comparison.comparison.save_figure")
    with draw, mock.patch.object(PolicyContender, "__call__", noting):
        stopped = rlab_command(*words, "--out", tmp_path / "stopped")
        assert stopped.code == 130
        assert str(tmp_path / "stopped") in stopped.err
        assert not (tmp_path / "stopped" / "samples.parquet").exists()
        assert rlab_command(*words, "--out", tmp_path / "stopped").code == 0
        assert rlab_command(*words, "--out", tmp_path / "whole").code == 0
        first, second = asked[:2]
        assert asked == [first, second, second, first, second]
        assert (
            rlab_command(*words, "--seed", 1, "--out", tmp_path / "stopped").code == 0
        )  # another question is asked anew
        assert len(asked) == 7
        assert rlab_command(*words, "--out", tmp_path / "stopped").code == 0
    for name in ("samples.parquet", "samples.csv"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_attack_that_cannot_be_loaded_is_told_before_the_first_query(tmp_path: Path) -> None:
    with (
        mock.patch.dict(sys.modules, {"foolbox": None, "foolbox.models.pytorch": None}),
        mock.patch.object(TorchVictim, "_predict", side_effect=AssertionError("asked")),
    ):
        said = rlab_command(*COMPARE, "--attacks", "foolbox:blur", "--out", tmp_path / "out")
    assert said.code == 2
    assert "foolbox" in said.err
    assert not (tmp_path / "out").exists()


def test_the_help_lists_the_attacks() -> None:
    said = rlab_command("compare", "--help").out
    assert all(name in said for name in ATTACKS)
