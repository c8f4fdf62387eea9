"""Decisions: drawn as often as their chance says, never where there is none, and judged as they were drawn."""

from __future__ import annotations

import math

import torch

from rlab.policies.video.choose import FORBIDDEN, choose, pick, toss


def test_pick_by_hand() -> None:
    chance = torch.tensor([[0.25, 0.5, 0.25]])
    for draw, option in ((0.0, 0), (0.2, 0), (0.25, 1), (0.7, 1), (0.75, 2), (0.999, 2)):
        assert pick(chance, torch.tensor([draw])).item() == option


def test_an_option_without_a_chance_is_never_picked() -> None:
    logits = torch.tensor([[FORBIDDEN, 0.3, FORBIDDEN, -2.0, FORBIDDEN]]).expand(4096, 5)
    draw = (torch.arange(4096) / 4096).clamp(max=1 - 2**-24)
    option, log_prob, entropy = choose(logits, draw, None)
    assert set(option.tolist()) == {1, 3}
    share = (option == 1).float().mean().item()
    assert abs(share - math.exp(0.3) / (math.exp(0.3) + math.exp(-2.0))) < 1e-3
    assert torch.isfinite(log_prob).all()
    expected = torch.distributions.Categorical(logits=torch.tensor([0.3, -2.0])).entropy()
    torch.testing.assert_close(entropy[0], expected)


def test_what_was_given_is_judged_as_what_was_drawn() -> None:
    logits = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    option, log_prob, _ = choose(logits, torch.rand(32, generator=torch.Generator().manual_seed(1)), None)
    again, judged, _ = choose(logits, None, option)
    assert torch.equal(option, again)
    assert torch.equal(log_prob, judged)


def test_toss_agrees_with_bernoulli() -> None:
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    yes, log_prob, entropy = toss(logits, torch.rand(8, 5, generator=torch.Generator().manual_seed(1)), None)
    known = torch.distributions.Bernoulli(logits=logits)
    torch.testing.assert_close(log_prob, known.log_prob(yes.float()).sum(1))
    torch.testing.assert_close(entropy, known.entropy().sum(1))
    assert torch.equal(toss(logits, None, yes)[0], yes)
