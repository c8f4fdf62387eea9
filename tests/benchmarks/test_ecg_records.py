"""The parts of the ECG benchmark on records of twelve leads: figures, sections and shares of heat."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks.ecg import harden, leads, plausible, twelve
from benchmarks.raw import Origin, Raw, Store, from_curves
from rlab.data.load import load
from rlab.runs.options import make_attack


def test_figures_of_lead_groups() -> None:
    """Curves (queries, distance) of two records; groups halve the distance at 100 queries."""
    alone = {"together": (((2, 4.0), (90, 2.0)), ((3, 8.0),)), "groups": (((2, 5.0), (95, 1.0)), ((5, 4.0),))}
    found = {case: alone[case.channels] for case in leads.QUICK}
    figures = leads.lead_figures(found)
    assert figures["lead_groups_ratio_100"] == pytest.approx(0.5)
    assert figures["leads_cnn7_together_20"] == pytest.approx(6.0)
    assert figures["leads_cnn7_groups_60"] == pytest.approx(4.5)
    assert "leads_cnn7_groups_200" not in figures  # beyond the budget
    assert "| cnn7, groups | 2 |" in leads.lead_section(found)


def test_figures_of_twelve_leads() -> None:
    """Two records: auto ends at 1 and 3, the better of the others at 100 queries is random with 5 and 11."""
    alone = {
        "auto": (((2, 4.0), (90, 1.0)), ((3, 3.0),)),
        "square": (((5, 6.0),), ((101, 1.0),)),
        "random": (((9, 5.0),), ((99, 11.0),)),
    }
    found = {case: [alone[case.policy]] for case in twelve.QUICK}
    figures = twelve.twelve_figures(found)
    assert figures["twelve_ratio_100"] == pytest.approx(2 / 8)
    assert (figures["twelve_cnn3_clinical_auto_20"], figures["twelve_cnn3_clinical_square_100"]) == (3.5, math.inf)
    assert figures["twelve_cnn3_clinical_square_flipped_100"] == 0.5
    assert "twelve_cnn3_clinical_auto_200" not in figures  # beyond the budget
    text = twelve.twelve_section(found)
    assert text.startswith("## Twelve leads")
    assert "| cnn3, clinical, random | 100.0%" in text
    neither = {case: [alone["square"]] if case.policy != "auto" else seeds for case, seeds in found.items()}
    assert twelve.over_better(neither, "cnn3", "clinical", 100).value == 0


@pytest.mark.real
def test_records_of_twelve_leads_are_grouped_by_default(real: Path) -> None:
    batch = load(real / "ptbxl", split="train", limit=2)
    assert batch.shape == (12, 1000)
    grid = make_attack(batch, patch=leads.PATCH).grid
    assert grid.groups == ((1, 2, 5), (0, 3, 4), (6, 7, 8), (9, 10, 11))
    assert grid.cells == (34,)


def test_heat_at_a_sign_is_the_share_of_the_positive_heat_in_its_wave_and_leads():
    masks = {wave: torch.zeros(2, 10, dtype=torch.bool) for wave in ("QRS", "ST")}
    masks["QRS"][:, 2:4], masks["ST"][:, 4:6] = True, True
    signs = [plausible.SIGNS["CRBBB"], plausible.SIGNS["IMI"]]
    acute, prior = (plausible.region(masks, signs, ("II", "V1"), q) for q in (False, True))
    assert acute.nonzero().tolist() == [[0, 1, 2], [0, 1, 3], [1, 0, 4], [1, 0, 5]]
    assert prior[1].nonzero().tolist() == [[0, 2], [0, 3], [0, 4], [0, 5]]
    heat = torch.zeros(2, 2, 10)
    heat[0, 1, 2], heat[0, 0, 2], heat[:, :, 9] = 3.0, 1.0, -5.0
    assert plausible.heat_share(heat, acute).tolist() == [0.75, 0.0]
    assert plausible.heat_share(torch.ones(2, 2, 10), acute).tolist() == pytest.approx([0.1, 0.1])
    times = plausible.over(torch.tensor([0.2, 0.4]), torch.tensor([0.1, 0.1]))
    assert times.value == pytest.approx(3.0)
    assert times.low <= 3.0 <= times.high


def shares() -> plausible.Shares:
    """Two records; `waves` has three times the heat of a uniform map at the sign."""
    values = {plausible.UNIFORM: 0.1, plausible.IN_WAVES: 0.2, plausible.OURS: 0.3}
    signs = {name: torch.tensor([value, value], dtype=torch.float64) for name, value in values.items()}
    others = {name: signs[plausible.UNIFORM] for name in plausible.METHODS if name != plausible.OURS}
    return plausible.Shares(("CLBBB", "IMI"), {**signs, **others}, {**signs, **others})


def test_shares_of_heat_come_back_from_raw_files_and_fill_the_section(tmp_path: Path) -> None:
    store, origin = Store(tmp_path), Origin("0.3", "abc", "a CPU", 1.0, {})
    assert plausible.stored(store) == {}
    for case in plausible.FULL:
        store.write(case.name, shares().raw(), origin)
    found = plausible.stored(store)
    assert found[plausible.QUICK].statements == ("CLBBB", "IMI")
    figures = plausible.plausible_figures(found)
    assert figures["plausible_over_uniform"] == pytest.approx(3.0)
    assert figures["plausible_over_uniform_in_waves"] == pytest.approx(1.5)
    assert figures["plausible_records_twelve_resnet_8-9"] == 2
    text = plausible.plausible_section(found)
    assert "| cnn7, fold 9, waves | 2 | 30.0% | 3 [3, 3] | 3 [3, 3] |" in text
    assert text.count("| IMI, ") == 2 * 3


def hardened(seed: int | None) -> Raw:
    """Two attacked records; hardening doubles their distance and keeps more labels."""
    far, share = (2.0, 0.5) if seed is None else (4.0, 0.75)
    curves = (((3, far),), ((5, far),))
    quality = {"macro_auc": 0.9, "labels_right": 0.8, "records_right": 0.6}
    return Raw({"curves": from_curves(curves), "quality": quality, "detection": {"muscle_noise in V1-V3": share}})


def test_figures_of_hardening() -> None:
    found = {case: hardened(case.seed) for case in harden.FULL}
    figures = harden.harden_figures(found)
    assert figures["harden_l2_times"] == pytest.approx(2.0)
    assert (figures["harden_before_detection"], figures["harden_after_detection"]) == (0.5, 0.75)
    text = harden.harden_section(found)
    assert "| muscle_noise in V1-V3 | 50.0% | 75.0% |" in text
    assert text.count("| after, seed") == len(harden.SEEDS)
    assert harden.harden_figures({}) == {}
