"""Configurations of the two agents' variants, for `rlab train`, and their trainings side by side on one GPU.

python -m benchmarks.video.variants --write runs/two                      # runs/two/NAME.yaml for every variant
python -m benchmarks.video.variants --train runs/two --only main --seconds 540     # resumes what was stopped; writes runs/two/NAME
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

BASE = Path("agents/two_agents.yaml")
WIDTH = 48
SHORT = {"minutes": 3, "validations": 3}  # of an ablation
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"main-{seed}": {"seed": seed} for seed in range(3)},
    "short": SHORT,
    "one-agent": SHORT | {"network": {"width": WIDTH, "temporal": False}},
    "no-objectness": SHORT | {"objectness": 0.0},
    "no-motion": SHORT | {"motion": 0.0},
    "l1-only": SHORT | {"network": {"width": WIDTH, "levels": 1}},
    "limit-quarter": SHORT | {"limit": 0.25},
    "limit-all": SHORT | {"limit": 1.0},
    "probability": SHORT | {"confidence": "probability"},
    "no-distortion-cost": SHORT | {"distortion": 0.0},
}


def write(folder: Path) -> list[str]:
    """A configuration for every variant; its keys replace those of the base."""
    folder.mkdir(parents=True, exist_ok=True)
    base = yaml.safe_load(BASE.read_text(encoding="utf-8"))
    for name, changes in VARIANTS.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(base | changes), encoding="utf-8")
    return list(VARIANTS)


def train(folder: Path, only: str, seconds: float, minutes: float | None) -> None:
    """Train all variants whose names start with `only`, side by side; stop them after `seconds`."""
    chosen = [name for name in write(folder) if name.startswith(tuple(only.split(",")))]
    limit = [] if minutes is None else ["--minutes", str(minutes)]
    running = []
    for name in chosen:
        log = (folder / f"{name}.log").open("a")
        words = ["rlab", "train", str(folder / f"{name}.yaml"), "--out", str(folder / name), *limit]
        command = ["timeout", str(seconds), sys.executable, "-m", *words]
        running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    for name, process in running:
        print(name, "ends with", process.wait(), flush=True)  # 124: stopped, to be resumed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the configurations to this folder and stop")
    parser.add_argument("--train", type=Path, help="train there")
    parser.add_argument("--only", default="main", help="how names start, separated by commas (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=540.0, help="stop then (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="minutes of each training in place of the configuration's")
    chosen = parser.parse_args()
    if chosen.write:
        print("\n".join(write(chosen.write)))
    if chosen.train:
        train(chosen.train, chosen.only, chosen.seconds, chosen.minutes)


if __name__ == "__main__":
    main()
