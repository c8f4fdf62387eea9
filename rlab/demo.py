"""The demonstration: the main job on embedded data in all three ranks, with small models that come with the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlab.core import defaults
from rlab.core.result import AttackResult
from rlab.present.plots import save_pictures
from rlab.progress import bar
from rlab.runs.attack import run_attack
from rlab.runs.config import RunOptions, make_config


@dataclass(frozen=True)
class Scene:
    """One part of the demonstration."""

    name: str
    title: str
    source: str  # where the data come from


SCENES = (
    Scene("ecg", "signal: ECG beats, two leads", "simulated"),
    Scene("digits", "image: handwritten digits", "real, from scikit-learn"),
    Scene("clips", "video: a moving object", "simulated"),
)


def demo_config(name: str, samples: int, policy: str, seed: int) -> RunOptions:
    return make_config(
        {
            "model": f"demo:{name}",
            "data": {"path": f"demo:{name}", "limit": samples},
            "policy": policy,
            "budget": 1000,
            "chunk": max(1, samples // 4),  # the bar moves at each
            "seed": seed,
        }
    )


def run_demo(
    out: Path,
    samples: int = 40,
    policy: str = defaults.POLICY,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, AttackResult]:
    """Attacks the three demo models; each scene becomes a run folder below `out`, with pictures."""
    results = {}
    for scene in SCENES:
        config = demo_config(scene.name, samples, policy, seed)
        batch = config.data.load()
        config, _ = config.filled(batch)
        tell(f"{scene.title} ({scene.source}), {len(batch)} samples, patches of {config.patch}")
        with bar(len(batch), scene.name) as progress:
            folder = out / scene.name
            results[scene.title] = run_attack(
                config.attack(batch), config.model.load(batch), batch, folder, config.plain(), seed, progress
            )
        save_pictures(results[scene.title], folder / "pictures", limit=4)
    return results
