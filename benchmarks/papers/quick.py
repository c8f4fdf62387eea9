"""The quick figures: both agents on the demo data, on the shipped networks, which they were not trained on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.attacks import attack, flips, median
from benchmarks.harness import Figures, Options
from benchmarks.papers.cases import AGENTS, entry_points
from benchmarks.raw import Curves
from rlab.data.batch import Batch
from rlab.data.embedded import embedded
from rlab.policies import parse_policy
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim, small_cnn

QUERIES, SECONDS = 300, {"dual_action": 30.0, "two_agents": 30.0}  # of training on the spot
SAMPLES = {"digits": 60, "clips": 12}
DEMO = {"dual_action": "digits", "two_agents": "clips"}
WEAK = ["gaussian_noise@0.15", "gaussian_blur@0.7", "dead_pixel@0.3", "illuminate@0.15"]  # one patch alone seldom flips
PALETTES = {"digits": WEAK, "clips": ["gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"]}
PATCHES: Mapping[str, Any] = {"digits": 2, "clips": (1, 8, 8)}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "dual_action": {
        "entries": 5,
        "rows": 32,
        "batch": 64,
        "gradient_steps": 4,
        "width": 16,
        "reward": "dilution_l2",
        "l2_penalty": 0.3,
        "learning_rate": 2e-3,
        "sweep": 0.125,
        "add": 1,
        "gamma": 0.8,
    },
    "two_agents": {"entries": 3, "rows": 16},
}


def other_network(demo: str, seconds: float, seed: int) -> TorchVictim:
    """A small network that learns the demo's training data for some seconds."""
    torch.manual_seed(seed)
    batch, shipped = embedded(demo, split="train"), demo_victim(demo)
    batch = batch if demo == "digits" else batch[:400]
    net = small_cnn(batch.rank, batch.x.shape[1], len(batch.classes), 16)
    optimizer, began = torch.optim.Adam(net.parameters(), 3e-3), time.monotonic()
    while time.monotonic() - began < seconds:
        rows = torch.randint(len(batch), (64,))
        optimizer.zero_grad()
        cross_entropy(net(batch.x[rows]), batch.y[rows]).backward()
        optimizer.step()
    return TorchVictim(net.eval(), outputs="logits", bounds=shipped.bounds)


def trained_agent(kind: str) -> tuple[str, str]:
    """The file of an agent, and where it comes from: stored, or trained now."""
    stored = AGENTS / f"{kind}-{DEMO[kind]}.safetensors"
    if stored.exists():
        return str(stored), f"stored weights {stored.name}"
    return str(train_on_the_spot(kind, SECONDS[kind])), f"trained on the spot for {SECONDS[kind]:.0f} s"


def train_on_the_spot(kind: str, seconds: float) -> Path:
    demo, (declares, trains) = DEMO[kind], entry_points(kind)
    batch: Batch = embedded(demo, split="train")[:300]
    values = {
        "models": [f"demo:{demo}"], "data": {"path": f"demo:{demo}"}, "palettes": [PALETTES[demo]], "keep": "last",
        "validation_palette": PALETTES[demo], "patches": [PATCHES[demo]], "validations": 1, "validation_samples": 2,
        "budget": QUERIES, "minutes": seconds / 60, **OPTIONS[kind],
    }  # fmt: skip
    victims = [other_network(demo, 4.0, seed) for seed in (0, 1)]
    path: Path = trains(
        victims, batch, None, check(declares, values), Path(tempfile.mkdtemp()) / kind, lambda told: None
    )
    return path


def curves(kind: str, policy: str) -> Curves:
    demo = DEMO[kind]
    batch, options = embedded(demo)[: SAMPLES[demo]], {"patch": PATCHES[demo], "palette": PALETTES[demo]}
    return flips(attack(demo_victim(demo), batch, policy=parse_policy(policy), budget=QUERIES, **options))


def ratios(kind: str, without: str, gain: str) -> Figures:
    """Distance over random's, and that of the agent without a part over its own."""
    agent, origin = trained_agent(kind)
    named = f"{kind}(agent={agent!r}"
    values = {name: median([curves(kind, spec)], QUERIES).value for name, spec in
              {"agent": f"{named})", "without": f"{named}, {without})", "random": "random"}.items()}  # fmt: skip
    told = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    print(f"{kind} on demo:{DEMO[kind]}, {origin}; median distance at {QUERIES} queries: {told}", flush=True)
    return {f"{kind}_over_random": values["agent"] / values["random"], gain: values["without"] / values["agent"]}


def quick(options: Options) -> Figures:
    chosen = {"dual_action": ("restore=False", "restore_gain"), "two_agents": ("temporal=False", "pair_gain")}
    kinds = [kind for kind in chosen if not options.only or kind in options.only]
    return {name: value for kind in kinds for name, value in ratios(kind, *chosen[kind]).items()}
