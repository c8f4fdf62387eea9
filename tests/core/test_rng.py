"""Random numbers per sample, compared with the published generator in plain integers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from rlab.core.rng import sample_seeds, splitmix64, uniform

ALL = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
INT64 = st.integers(-(2**63), 2**63 - 1)


def mix(z: int) -> int:
    """splitmix64's output function."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
    return z ^ (z >> 31)


def reference(seed: int, step: int, count: int) -> list[float]:
    key = mix((mix((seed * GOLDEN) & ALL) + step) & ALL)
    return [(mix((key + lane * GOLDEN) & ALL) >> 40) / 2**24 for lane in range(1, count + 1)]


def draw(seed: int, step: int, count: int) -> Tensor:
    return uniform(tensor([seed]), tensor([step]), count)[0]


def test_splitmix64() -> None:
    """Published implementations give these numbers for the seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [mix((1234567 + lane * GOLDEN) & ALL) for lane in range(1, 5)] == published
    states = 1234567 + torch.arange(1, 5) * (GOLDEN - 2**64)
    assert [value & ALL for value in splitmix64(states).tolist()] == published


@given(INT64, st.integers(0, 2**40), st.integers(1, 40))
def test_draws_equal_the_reference(seed: int, step: int, count: int) -> None:
    assert draw(seed, step, count).tolist() == reference(seed, step, count)


@given(INT64, st.integers(0, 10**6), st.integers(1, 20))
def test_sample_seeds_equal_the_reference(seed: int, start: int, count: int) -> None:
    expected = [mix((mix((seed * GOLDEN) & ALL) + start + i) & ALL) for i in range(count)]
    assert [value & ALL for value in sample_seeds(seed, start, count).tolist()] == expected


@given(st.lists(INT64, min_size=1, max_size=8), st.integers(0, 1000), st.integers(1, 16))
def test_a_row_does_not_depend_on_other_rows(seeds: list[int], step: int, count: int) -> None:
    together = uniform(tensor(seeds), torch.arange(step, step + len(seeds)), count)
    for i, seed in enumerate(seeds):
        assert torch.equal(together[i], draw(seed, step + i, count))


def test_steps_and_seeds_differ() -> None:
    rows = uniform(torch.arange(200).repeat_interleave(50), torch.arange(50).repeat(200), 4)
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
    assert len(set(sample_seeds(0, 0, 10_000).tolist())) == 10_000
    assert not set(sample_seeds(0, 0, 10_000).tolist()) & set(sample_seeds(1, 0, 10_000).tolist())


def chi_square(values: Tensor, bins: int) -> float:
    counts = torch.histc(values, bins, 0, 1)
    expected = values.numel() / bins
    return float(((counts - expected) ** 2 / expected).sum())


def test_draws_are_uniform_along_seeds_steps_and_lanes() -> None:
    n, bins = 100_000, 100
    seeds = sample_seeds(7, 0, n)
    along = {
        "seeds": uniform(seeds, torch.zeros(n, dtype=torch.int64), 1),
        "neighbouring seeds": uniform(torch.arange(n), torch.zeros(n, dtype=torch.int64), 1),
        "steps": uniform(seeds[:1].expand(n), torch.arange(n), 1),
        "lanes": uniform(seeds[:1], torch.zeros(1, dtype=torch.int64), n),
    }
    for name, values in along.items():
        assert values.min() >= 0, name
        assert values.max() < 1, name
        # chi-square with 99 degrees of freedom: 99.99% of true uniform draws lie between 51 and 161
        assert 51 < chi_square(values, bins) < 161, name


def test_successive_draws_are_not_correlated() -> None:
    values = uniform(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), 100_000)[0]
    pairs = torch.stack([values[:-1], values[1:]])
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 0.015
