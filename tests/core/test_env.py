"""The environment: rendering, the dual action, what is kept, what is remembered."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from rlab.core.batched import NoMemory, Rows
from rlab.core.env import Accept, AttackEnv, Proposal, State, Task, edit, render
from rlab.core.env import propose as propose_all
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.errors import InputError
from tests.helpers import CHANNELS, RANKS, SIZES, make_grid
from tests.helpers import inside as within

ENTRIES = 3


def make_bank(rank: int, n: int = 2, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    shape = (n, ENTRIES + 1, CHANNELS[rank], *SIZES[rank])
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_render_copies_every_patch_from_its_entry(rank: int, dtype: torch.dtype) -> None:
    grid, bank = make_grid(rank), make_bank(rank, 3, dtype)
    assignment = torch.randint(0, ENTRIES + 1, (3, len(grid)), generator=torch.Generator().manual_seed(1))
    x = render(bank, assignment, grid)
    for row, patch in itertools.product(range(3), range(len(grid))):
        entry = int(assignment[row, patch])
        for point in itertools.product(*(range(box.start, box.stop) for box in grid.box(patch))):
            assert torch.equal(x[row][within(point)], bank[row, entry][within(point)])


@given(
    rank=st.sampled_from(RANKS),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    moves=st.lists(st.tuples(st.integers(0, ENTRIES), st.integers(0, 5), st.integers(-1, 5)), max_size=12),
)
def test_whatever_was_done_restoring_all_gives_the_input_back_bit_by_bit(
    rank: int, dtype: torch.dtype, moves: list[tuple[int, int, int]]
) -> None:
    grid, bank = make_grid(rank), make_bank(rank, 1, dtype)
    patches = len(grid)
    assignment = torch.zeros(1, patches, dtype=torch.int64)
    for entry, patch, back in moves:
        assignment = edit(assignment, tensor([[entry * patches + patch]]), tensor([[back]]))
    everything = torch.arange(patches)[None]
    restored = edit(assignment, tensor([[-1]]), everything)
    assert not restored.any()
    assert torch.equal(render(bank, restored, grid), bank[:, 0])


@pytest.mark.parametrize(
    ("add", "restore", "after"),
    [
        ([-1], [-1], [0, 1, 2, 0]),  # nothing
        ([3 * 4 + 0], [-1], [3, 1, 2, 0]),
        ([2 * 4 + 1], [-1], [0, 2, 2, 0]),  # another entry over the one there
        ([-1], [1], [0, 0, 2, 0]),
        ([-1], [0], [0, 1, 2, 0]),  # nothing there to restore
        ([1 * 4 + 3], [2], [0, 1, 0, 1]),  # both at once
        ([1 * 4 + 2], [2], [0, 1, 1, 0]),  # an addition goes before a restore of the same patch
        ([1 * 4 + 0, -1, 3 * 4 + 3], [1, 2, -1], [1, 0, 0, 3]),  # several, with empty places among them
        ([-1, -1], [-1, -1, -1], [0, 1, 2, 0]),
    ],
)
def test_the_dual_action(add: list[int], restore: list[int], after: list[int]) -> None:
    before = tensor([[0, 1, 2, 0]])
    assert edit(before, tensor([add]), tensor([restore])).tolist() == [after]
    assert before.tolist() == [[0, 1, 2, 0]]  # left as it was


class Script:
    """A model that answers the margins it is told to, and keeps what it was asked."""

    def __init__(self, *margins: list[float]) -> None:
        self.margins = list(margins)
        self.asked: list[tuple[Tensor, list[int], str]] = []

    def __call__(self, x: Tensor, phase: str, samples: Tensor, assignment: Tensor) -> Tensor:
        self.asked.append((x, samples.tolist(), phase))
        return scores_of(self.margins.pop(0))


def scores_of(margins: list[float]) -> Tensor:
    """Scores (n, 2) with these margins for label 0."""
    return torch.stack([tensor(margins), torch.zeros(len(margins))], 1)


GRID = PatchGrid((4,), (1,))


def begin(script: Script, start: list[float], scale: float = 1.0, **options: object) -> tuple[AttackEnv, State]:
    """Rows of four patches of one value; entry 1 adds 3 to it, entry 2 adds 4."""
    n = len(start)
    env = AttackEnv(script, Task(GRID, 2, Untargeted(), 10, **options))  # type: ignore[arg-type]
    bank = torch.zeros(n, 3, 1, 4)
    bank[:, 1], bank[:, 2] = 3, 4
    return env, env.start(
        y=torch.zeros(n, dtype=torch.int64),
        sample=torch.arange(n) + 10,
        seed=torch.arange(n),
        bank=bank,
        scale=torch.full((n,), scale),
        scores=scores_of(start),
    )


def propose(assignment: list[list[int]], rule: Accept = Accept.IF_BETTER) -> Proposal[NoMemory]:
    return propose_all(tensor(assignment), rule)


def test_a_start_asks_nothing_and_is_untouched() -> None:
    script = Script()
    _, state = begin(script, [2.0, 3.0])
    assert not script.asked
    assert state.margin.tolist() == [2, 3]
    assert not state.assignment.any()
    assert state.distance.tolist() == [0, 0]
    assert state.step.tolist() == [0, 0]
    assert torch.equal(state.x, state.x0)


def test_a_step_is_one_row_for_every_live_row() -> None:
    script = Script([1.0, 1.0, 1.0], [0.5])
    env, state = begin(script, [2.0, 2.0, 2.0])
    state, _ = env.step(state, propose([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]))
    state, _ = env.step(state[tensor([1])], propose([[0, 2, 0, 1]]), "cleanup")
    assert [(len(x), samples, phase) for x, samples, phase in script.asked] == [
        (3, [10, 11, 12], "search"),
        (1, [11], "cleanup"),
    ]
    assert script.asked[0][0].tolist() == [[[3, 0, 0, 0]], [[0, 4, 0, 0]], [[0, 0, 0, 0]]]
    assert script.asked[1][0].tolist() == [[[0, 4, 0, 3]]]


RULES = [  # rule of the proposal, the task's accept, new margin (old 2) -> accepted?
    (Accept.IF_FLIPPED, "better", 1.0, False),
    (Accept.IF_FLIPPED, "always", 1.0, False),
    (Accept.IF_FLIPPED, "better", -1.0, True),  # the goal is reached: that stays in any case
    (Accept.IF_BETTER, "better", 1.0, True),
    (Accept.IF_BETTER, "better", 2.0, False),
    (Accept.IF_BETTER, "better", 3.0, False),
    (Accept.IF_BETTER, "always", 3.0, True),
    (Accept.ALWAYS, "better", 3.0, True),
    (Accept.ALWAYS, "always", 3.0, True),
]


@pytest.mark.parametrize(("rule", "accept", "margin", "stays"), RULES)
def test_what_stays(rule: Accept, accept: str, margin: float, stays: bool) -> None:
    env, before = begin(Script([margin]), [2.0], accept=accept)
    after, outcome = env.step(before, propose([[0, 2, 0, 0]], rule))
    assert outcome.accepted.tolist() == [stays]
    assert outcome.done.tolist() == [margin < 0]
    assert after.drop.tolist() == [2 - margin]
    assert after.assignment.tolist() == ([[0, 2, 0, 0]] if stays else [[0, 0, 0, 0]])
    assert after.x.tolist() == [[[0, 4 * stays, 0, 0]]]
    assert after.margin.tolist() == [margin if stays else 2]
    assert after.distance.tolist() == [4 * stays]
    assert torch.equal(after.scores, scores_of([margin if stays else 2.0]))
    assert after.step.tolist() == [1]
    assert before.assignment.tolist() == [[0, 0, 0, 0]]  # a step makes a new state


def test_nearer_flips_stay_and_nothing_else() -> None:
    """Before the flip nothing but a flip stays, however much better; after it only one with less distance."""
    env, state = begin(Script([0.1], [-1.0], [-2.0], [-0.1], [0.5], [-3.0]), [2.0], accept="always")
    stays = []
    for assignment in ([1, 0, 0, 0], [2, 2, 2, 0], [2, 2, 2, 1], [0, 1, 2, 0], [0, 1, 0, 0], [0, 2, 1, 0]):
        state, outcome = env.step(state, propose([assignment], Accept.IF_NEARER))
        stays.append((bool(outcome.accepted), state.assignment[0].tolist()))
        assert state.queried.tolist() == [assignment]  # what was asked last, kept or not
    nothing, first, nearer = [0, 0, 0, 0], [2, 2, 2, 0], [0, 1, 2, 0]
    assert stays == [(False, nothing), (True, first), (False, first), (True, nearer), (False, nearer), (False, nearer)]
    assert state.distance.tolist() == [5]
    assert state.margin.tolist() == pytest.approx([-0.1])
    assert torch.equal(state.answer, scores_of([-3.0]))


def test_flips_with_fewer_patches_stay_however_far() -> None:
    """With as many patches only a nearer one does; before the flip, nothing but a flip."""
    env, state = begin(Script([0.1], [-1.0], [-2.0], [-0.1], [0.5], [-3.0], [-1.0]), [2.0], accept="always")
    wanted = ([1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [2, 0, 2, 0], [0, 1, 0, 0], [0, 2, 1, 0], [0, 2, 2, 0])
    stays = []
    for assignment in wanted:
        state, outcome = env.step(state, propose([assignment], Accept.IF_FEWER))
        stays.append((bool(outcome.accepted), state.assignment[0].tolist()))
    nothing, first, thinner, nearer = [0, 0, 0, 0], [1, 1, 1, 0], [2, 0, 2, 0], [0, 2, 1, 0]
    assert stays == [
        (False, nothing), (True, first), (False, first), (True, thinner), (False, thinner), (True, nearer), (False, nearer),
    ]  # fmt: skip


def test_a_noisy_model_must_be_beaten_by_its_noise() -> None:
    script = Script([-0.5, -0.5], [-0.7, -0.7])
    env, calm = begin(script, [2.0, 2.0])
    state = env.start(calm.y, calm.sample, calm.seed, calm.bank, calm.scale, calm.clean, tensor([0.3, 0.0]))
    assert state.margin.tolist() == pytest.approx([2.6, 2.0])
    assert state.margin0.tolist() == [2, 2]
    state, outcome = env.step(state, propose([[1, 0, 0, 0]] * 2))
    assert outcome.done.tolist() == [False, True]
    state, outcome = env.step(state, propose([[1, 1, 0, 0]] * 2))
    assert outcome.done.tolist() == [True, True]
    assert state.margin.tolist() == pytest.approx([-0.1, -0.7])


@pytest.mark.parametrize(("measure", "distance"), [("l2", 0.5), ("linf", 0.4), ("map", 0.175), ("l0", 2.0)])
def test_the_distance_is_by_the_tasks_measure_in_units_of_the_scale(measure: str, distance: float) -> None:
    env, state = begin(Script([1.0]), [2.0], scale=10.0, distance=measure)
    state, _ = env.step(state, propose([[1, 0, 2, 0]]))  # changes of 3 and 4 among four values
    assert state.distance.tolist() == pytest.approx([distance])


def test_nan_is_a_failure_and_probability_zero_for_the_true_class_a_success() -> None:
    env, state = begin(Script([math.nan, -1.0, 1.0, -math.inf]), [2.0] * 4)
    state, outcome = env.step(state, propose([[1, 0, 0, 0]] * 4))
    assert outcome.failed.tolist() == [True, False, False, False]
    assert outcome.done.tolist() == [False, True, False, True]
    assert outcome.accepted.tolist() == [False, True, True, True]
    assert state.margin.tolist() == [2, -1, 1, -math.inf]


def test_states_are_cut_joined_and_replaced_by_rows() -> None:
    env, state = begin(Script([1.0, 3.0, 0.5]), [2.0, 2.0, 2.0])
    moved, _ = env.step(state, propose([[1, 0, 0, 0]] * 3))
    parts = [moved[tensor([2])], moved[tensor([0, 1])]]
    assert State.cat(parts).sample.tolist() == [12, 10, 11]
    assert State.cat(parts).margin.tolist() == [0.5, 1, 2]
    after = state.put(tensor([1]), moved[tensor([2])])
    assert after.margin.tolist() == [2, 0.5, 2]
    assert after.sample.tolist() == [10, 12, 12]
    assert after.assignment.tolist() == [[0] * 4, [1, 0, 0, 0], [0] * 4]
    assert state.sample.tolist() == [10, 11, 12]  # the original is left alone


@dataclass(frozen=True)
class Inner(Rows):
    values: Tensor


@dataclass(frozen=True)
class Outer(Rows):
    inner: Inner
    maybe: Tensor | None
    steps: int = 3


@pytest.mark.parametrize("maybe", [None, tensor([[5], [6]])])
def test_rows_nest_and_share_numbers(maybe: Tensor | None) -> None:
    first = Outer(Inner(tensor([1, 2])), maybe)
    second = first[tensor([False, True])]
    assert second.inner.values.tolist() == [2]
    assert Outer.cat([first, second]).inner.values.tolist() == [1, 2, 2]
    assert first.put(tensor([0]), second).inner.values.tolist() == [2, 2]
    assert (second.maybe is None) == (maybe is None)
    assert second.steps == Outer.cat([first, second]).steps == 3


def test_a_proposal_is_cut_with_its_memory() -> None:
    proposal = Proposal(tensor([[0], [1]]), tensor([0, 0]), Inner(tensor([7, 8])))
    assert proposal[tensor([1])].memory.values.tolist() == [8]


def test_accept_is_one_of_two_words() -> None:
    with pytest.raises(InputError, match="expected accept to be 'better' or 'always', got 'worse'"):
        Task(GRID, 1, Untargeted(), 10, accept="worse")  # type: ignore[arg-type]
