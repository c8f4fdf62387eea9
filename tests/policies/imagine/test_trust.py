"""Trust in forecasters: the equations by hand, and that it moves to whoever is right."""

from __future__ import annotations

import pytest
import torch

from rlab.policies.imagine.trust import COUNT, NOISE, SAY, VARIANCE, Trust


def test_before_the_first_answer_the_guess_decides() -> None:
    trust = Trust.first(2, torch.zeros(1))
    mean, deviation = trust.forecast(torch.tensor([[[1.0, 0.5, -1.0, 1.0]]]))  # two networks, the belief, a constant
    assert mean.item() == pytest.approx(SAY * 0.75 - (1 - SAY))
    variance = VARIANCE[0] / 2 * (1 + 0.25) + VARIANCE[1] + VARIANCE[2]
    assert deviation.item() == pytest.approx((variance + NOISE**2) ** 0.5)


def test_one_answer_by_the_equations_of_ridge_regression() -> None:
    forecasts, margin = torch.tensor([[1.0, 0.4, 1.0]]), torch.tensor([0.2])  # one network
    trust = Trust.first(1, torch.zeros(1)).after(forecasts, margin)
    guess, variance = torch.tensor([SAY, 1 - SAY, 0.0]), torch.diag(torch.tensor(VARIANCE))
    error = margin - forecasts @ guess
    noise = ((COUNT * NOISE**2 + error.square()) / (COUNT + 1)).item()
    gain = variance @ forecasts.T / (forecasts @ variance @ forecasts.T + noise)
    weights = guess + (gain * error)[:, 0]
    mean, _ = trust.forecast(forecasts[:, None])
    assert mean.item() == pytest.approx((forecasts @ weights).item(), rel=1e-4)


def test_a_network_that_misleads_loses_its_say() -> None:
    right, wrong = torch.linspace(1, -0.5, 12), torch.linspace(-0.5, 1, 12)
    trust = Trust.first(2, torch.zeros(1))
    for good, bad in zip(right, wrong, strict=True):
        trust = trust.after(torch.tensor([[good, bad, 0.5, 1.0]]), good[None])
    candidates = torch.tensor([[[-0.5, 1.0, 0.5, 1.0], [1.0, -0.5, 0.5, 1.0]]])
    mean, _ = trust.forecast(candidates)
    assert mean[0, 0] < 0 < mean[0, 1]
