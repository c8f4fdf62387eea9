"""Train the critic that chooses among the candidates of the policy `imagine`, and write the file that ships.

python -m benchmarks.critic --out rlab/assets/critic.safetensors [--device cuda]

The critic learns by reward, the improvement of the log distance. While it trains, the victim answers for all candidates,
not just for the chosen one, so that the reward of every choice is known. Round by round it attacks victims that no page of
results reports, with its own choices from the second round on, and learns from all rounds:

    loss = cross entropy of the flips - REWARD * mean reward of a soft choice

Victims: five CIFAR-10 networks with the others as surrogates or with students of their own, a network for beats and the
demo's networks for beats, digits and clips, with students.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.attacks import NATURAL, SURROGATES
from benchmarks.beats import balanced, beats
from benchmarks.data import Absent, cifar_test
from benchmarks.ecg.cases import PALETTE
from benchmarks.harness import command
from benchmarks.victims import beat_victim, cifar_victim
from rlab.core.env import State, Task, render
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.learning.answers import Answers
from rlab.learning.distil import distil
from rlab.policies.belief import Belief
from rlab.policies.belief.state import BeliefState
from rlab.policies.imagine.critic import Critic, Evidence, analytic, save_critic
from rlab.policies.imagine.policy import Candidates, ImaginePolicy
from rlab.priors.surrogates import SurrogatePrior
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.base import Victim
from rlab.victims.zoo import demo_victim

FIRST_IMAGE = 1800  # of the CIFAR-10 test set; pages report on the first 500, settings were chosen on 1000-1399
SAMPLES, QUERIES, TAUGHT = (
    224,
    20,
    1000,
)  # attacked in one world, each with this many queries; answers that students learn from
ROUNDS, STEPS, RATE, ROWS = 1, 3000, 2e-3, 1024
REWARD, SOFTNESS = 3.0, 0.03
VARIED: tuple[dict[str, Any], ...] = (
    {}, {"patch": 8}, {"palette": ("channel_shift@0.1",)}, {"distance": "linf"}, {"patch": 2},
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A victim, what imitates it, and inputs to attack."""

    name: str
    victim: Victim
    imitations: Sequence[nn.Module | Victim]
    batch: Batch
    options: dict[str, Any]


@dataclass(frozen=True)
class Lesson:
    """What was known of the candidates of n steps, and the reward of each."""

    evidence: Evidence
    gain: Tensor  # (n, c) the improvement of the log distance if it flips; 0 if it cannot help
    flipped: Tensor  # (n, c) bool


@dataclass(frozen=True)
class Recorder(ImaginePolicy):
    """The policy, which also asks the victim about every candidate."""

    victim: Victim = field(kw_only=True, repr=False)
    lessons: list[Lesson] = field(kw_only=True, repr=False)

    def choose(
        self, candidates: Candidates, evidence: Evidence, belief: BeliefState, state: State, task: Task
    ) -> Tensor:
        every = [
            task.goal.margin(self.victim(render(state.bank, each, task.grid), "train"), state.y) < 0
            for each in candidates.assignment.unbind(1)
        ]
        gain = candidates.nearer.clamp(min=0).masked_fill(candidates.idle, 0.0)
        self.lessons.append(Lesson(evidence, gain, torch.stack(every, 1)))
        return super().choose(candidates, evidence, belief, state, task)


def worlds(turn: int, device: str) -> Iterator[World]:
    """The worlds of a round, one after the other."""
    draw = random.Random(turn)
    nets = {name: cifar_victim(name, device) for name in SURROGATES}
    images = cifar_test(5000)[FIRST_IMAGE + 600 * turn :]
    for place, (name, net) in enumerate(nets.items()):
        others, batch = [other for other in SURROGATES if other != name], images[100 * place : 100 * place + SAMPLES]
        some, shared = draw.sample(others, 1 + (place + turn) % 3), {"palette": NATURAL, "patch": 4}
        if (place + turn) % 3 == 0:
            yield World(f"{name} by {others}", net, [nets[other] for other in others], batch, shared)
        elif (place + turn) % 3 == 1:
            taught = students(net, images[-TAUGHT:], turn, device)
            yield World(f"{name} by students", net, taught, batch, shared)
        else:
            varied = shared | VARIED[(place + turn) % len(VARIED)]
            yield World(f"{name} by {some}", net, [nets[other] for other in some], batch, varied)
    for name, shared in (("ecg", {}), ("digits", {}), ("clips", {})):
        net, batch = demo_victim(name, device), load(f"demo:{name}")
        most = 24 if name == "clips" else SAMPLES
        yield World(f"demo {name} by students", net, students(net, batch[most:], turn, device), batch[:most], shared)
    try:
        net, batch = beat_victim("resnet", device), beats("train")
    except Absent as why:
        print(f"skipped beats: {why}")
        return
    batch = batch[balanced(batch.y, torch.ones(len(batch), dtype=torch.bool), TAUGHT + SAMPLES, seed=turn)]
    taught = students(net, batch[SAMPLES:], turn, device)
    yield World("beats resnet by students", net, taught, batch[:SAMPLES], {"palette": PALETTE, "patch": 10})


def students(victim: Victim, batch: Batch, seed: int, device: str) -> Sequence[Victim]:
    """Students of the victim's answers on these inputs."""
    scores = torch.cat([victim(part.to(victim.device), "train").cpu() for part in batch.x.split(256)])
    made = distil(Answers(batch.x, scores), batch.bounds, multilabel=False, seed=seed, device=torch.device(device))
    return made.victims(torch.device(device))


def gather(world: World, critic: Critic | None) -> Lesson:
    """Attack a world and keep what was known of all candidates, and their rewards."""
    options = {"chunk": len(world.batch), "budget": QUERIES + 1, "until": "budget", **world.options}
    attack = make_attack(world.batch, policy="belief", surrogate=tuple(world.imitations), **options)
    search = attack.policy
    assert isinstance(search, Belief) and isinstance(search.prior, SurrogatePrior)  # noqa: PT018
    recorder = Recorder(search, search.prior, judge=critic or analytic, victim=world.victim, lessons=[])
    run_attack(replace(attack, policy=recorder), world.victim, world.batch)
    evidence = Evidence.cat([lesson.evidence for lesson in recorder.lessons])
    gain, flipped = (torch.cat([getattr(x, name) for x in recorder.lessons]) for name in ("gain", "flipped"))
    return Lesson(evidence, gain, flipped)


def teach(lessons: Sequence[Lesson], device: str, seed: int = 0) -> Critic:
    """A critic from scratch."""
    torch.manual_seed(seed)
    critic, chance = Critic().to(device), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(critic.parameters(), RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(STEPS):
        lesson = lessons[int(torch.randint(len(lessons), (1,), generator=chance))]
        rows = torch.randint(len(lesson.gain), (ROWS,), generator=chance).to(device)
        gain, won = lesson.gain[rows], lesson.flipped[rows].float()
        mean, deviation = critic(lesson.evidence[rows])
        flips = torch.special.ndtr((-mean / deviation).clamp(-6, 6)).clamp(1e-5, 1 - 1e-5)
        weight = torch.where(gain > 0, 0.2 + gain, 0.0)
        entropy = (weight * F.binary_cross_entropy(flips, won, reduction="none")).sum() / weight.sum().clamp(min=1)
        choice = (flips * gain / SOFTNESS).masked_fill(gain <= 0, -50.0).softmax(1)
        reward = (choice * won * gain).sum(1).mean()
        optimizer.zero_grad()
        (entropy - REWARD * reward).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % (STEPS // 4) == 0:
            print(f"step {step + 1}: cross entropy {entropy.item():.3f}, reward {reward.item():.4f}", flush=True)
    return critic.eval()


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    o = parser.parse_args()
    lessons, critic, names = list[Lesson](), None, list[str]()
    for turn in range(ROUNDS):
        for world in worlds(turn, o.device):
            began = time.perf_counter()
            lessons.append(gather(world, critic))
            names.append(world.name)
            print(f"round {turn}: {world.name}, {time.perf_counter() - began:.0f} s", flush=True)
        critic = teach(lessons, o.device)
    assert critic is not None
    card = {
        "trained on": sorted(set(names)), "rounds": ROUNDS, "steps": STEPS, "samples": SAMPLES, "queries": QUERIES,
        "command": "python -m benchmarks.critic",
    }  # fmt: skip
    save_critic(critic, o.out, card)


if __name__ == "__main__":
    main()
