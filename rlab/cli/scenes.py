"""The demo: attack small built-in models on embedded signals, images and clips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlab.core import defaults
from rlab.data.load import DataOptions
from rlab.progress import bar
from rlab.results.plots import save_pictures
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.storage.resume import open_run
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model


@dataclass(frozen=True)
class Scene:
    """One part of the demo."""

    name: str
    title: str
    source: str  # origin of the data


SCENES = (
    Scene("ecg", "signal: ECG beats, two leads", "simulated"),
    Scene("digits", "image: handwritten digits", "real, from scikit-learn"),
    Scene("clips", "video: a moving object", "simulated"),
)


def demo_options(name: str, samples: int, policy: str, seed: int) -> RunOptions:
    return RunOptions(
        model=ModelOptions(name=f"demo:{name}"),
        data=DataOptions(path=f"demo:{name}", limit=samples),
        policy=policy,
        budget=1000,
        chunk=max(1, samples // 4),  # the bar advances with each chunk
        seed=seed,
    )


def run_demo(
    out: Path,
    samples: int = 40,
    policy: str = defaults.POLICY,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, AttackResult]:
    """Attack the three demo models; each scene gets a run folder with pictures below `out`."""
    results = {}
    with open_run(out, {"command": "demo"}) as resume:
        resume.create()
        for scene in SCENES:
            options = demo_options(scene.name, samples, policy, seed)
            batch, folder = options.data.load(), out / scene.name
            options, _ = options.filled(batch)
            tell(f"{scene.title} ({scene.source}), {len(batch)} samples, patches of {options.patch}")
            with bar(len(batch), scene.name) as progress:
                victim = load_model(options.model, batch.bounds)
                result = run_attack(options, victim, batch, folder, options.plain(), progress)
            save_pictures(result, folder / "pictures", limit=4)
            results[scene.title] = result
    return results
