"""Is a hardened model harder to break, at the same clean accuracy, and more than by what people use today?

python -m benchmarks.harden --trials --device cuda --raw OUT # every method, all its settings; start it several times to share work
python -m benchmarks.harden --choose OUT                     # the best of each: OUT/settings.json
python -m benchmarks.harden --device cuda --raw OUT --settings OUT/settings.json   # trains and measures, likewise shared
python -m benchmarks.harden --only ecg --methods unchanged,ours --seeds 0 --set epochs=4 --tag short --raw OUT     # a trial
python -m benchmarks.harden --collect OUT                    # what was found goes to results/raw/harden.json, weights to weights
python -m benchmarks.harden --page                           # results/harden.md from that file, nothing is run
python -m benchmarks.harden --quick                          # under a minute: hardened weights of this folder attacked, few samples

cifar (ResNet-20) needs CIFAR-10 training images (--cifar, an .npz with x uint8 and y), ecg (a CNN of MIT-BIH beats) the records
or their pack, clips (C3D on six actions of UCF-101) the arrays of `benchmarks.video --unpack`.

Every method fine-tunes the same net on the same data for the same epochs with the same optimizer; who makes the harder samples
(chance, the gradient of the model, the belief search) and the loss are the method's own. Of a training the epoch is kept that
holds best against its own samples on data to choose by, the unchanged net among them; its weights are drawn back on the line to
the unchanged ones until clean accuracy on these data is within 0.8 points: that is a method's row; the points at 40, 70 and 100%
of the way are its curve. Every method was tried with as many settings as every other (nine on CIFAR-10, six on beats, four on
clips), and the one with the largest distance on the data to choose by is reported; of ours, six others on CIFAR-10 and four on
beats had been tried before. CIFAR-10: 36,000 of the 50,000 training images, at 6 bits a value, the two lowest random, as no more
could be brought to the GPU. What is chosen by, reported on and trained on share no patient and no group of clips. Distance is L2,
of clips the mean absolute change: the median of the best flip within so many queries of `auto` with the package's own palette,
over samples the model had right, no flip counting as infinitely far; times unchanged is the ratio within 200 queries, ours over
it likewise. Square and PGD: samples that stay right. Corruptions: the palette's filters over the whole input; held-out: all other
filters; common: CIFAR-10-C's kinds that the palette does not hold (13 of 15, `benchmarks/corruptions.py`). Brackets are 95%
bootstrap intervals over seeds and samples.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks import common
from benchmarks.harden_bench import METHODS, SECTIONS, Job, Section, cifar, retrained, run, smaller
from benchmarks.harden_page import collect, write_page
from benchmarks.harden_quick import quick
from benchmarks.harden_trials import SETTINGS, choose, chosen, trials


def jobs(o: argparse.Namespace) -> Iterator[Job]:
    """The most wanted first."""
    if o.trials:
        for section in o.only.split(","):
            yield Job(section, "unchanged", 0, tag="trial0", whole=False, trial=0)
            for method, number, trial in trials(section):
                values = tuple(trial.values.items())
                yield Job(section, method, 0, values, f"trial{number}", False, trial.spec, number)
        return
    settings = json.loads(o.settings.read_text()) if o.settings.exists() else {}
    further = tuple((name, _value(text)) for name, _, text in (word.partition("=") for word in o.set))
    for seed in o.seeds.split(","):
        for section in o.only.split(","):
            for method in o.methods.split(","):
                if method == "belief" and (section != "ecg" or int(seed)):
                    continue  # a policy's queries take long: beats alone, one seed
                best = chosen(settings, section, method)
                values = (*best.values.items(), *further)
                yield Job(section, method, int(seed), values, o.tag, not o.short, best.spec)


def work(o: argparse.Namespace) -> int:
    """All jobs that no other process has taken; how many were done."""
    sections: dict[str, Section] = {}
    o.raw.mkdir(parents=True, exist_ok=True)
    done = 0
    for job in jobs(o):
        if time.monotonic() - BEGAN > o.minutes * 60 or (o.raw / f"{job.name}.json").exists():
            continue
        if not _taken(o.raw / f"{job.name}.lock"):
            continue
        try:
            if job.section not in sections:
                sections[job.section] = _section(job.section, o)
        except common.Absent as why:
            print(f"skipped {job.section}: {why}", flush=True)
            continue
        figures, weights = run(job, sections[job.section], o.few)
        beside = o.raw / f"{job.name}.part"
        beside.write_text(json.dumps(figures))
        if job.trial is None:
            halved = {k: (v.half() if v.is_floating_point() else v).cpu().contiguous() for k, v in weights.items()}
            save_file(halved, o.raw / f"{job.name}.safetensors")
        beside.replace(o.raw / f"{job.name}.json")
        point = figures["points"][0]
        print(f"{job.name}: {_told(point)}, {figures['seconds']:.0f} of {figures['all_seconds']:.0f} s", flush=True)
        done += 1
    return done


def retrain(o: argparse.Namespace) -> int:
    """Priors trained against the hardened models of the first seed that are there."""
    done = 0
    for section in o.only.split(","):
        for method in ("unchanged", "ours", "augmix"):
            weights = o.raw / f"harden-{section}-{method}-0.safetensors"
            if not weights.exists() or not _taken(o.raw / f"retrained-{section}-{method}.lock"):
                continue
            name = f"retrained-{section}-{method}"
            found = retrained(_section(section, o), weights, o.retrain, o.raw / f"{name}-prior")
            told = {"section": section, "method": method, "minutes": o.retrain} | found
            (o.raw / f"{name}.json").write_text(json.dumps(told))
            print(f"{name}: {_told({'share': 1.0, 'clean': 0.0} | found)}", flush=True)
            done += 1
    return done


BEGAN = time.monotonic()


def _told(point: dict[str, Any]) -> str:
    l2 = sorted(v for v in point["l2_200"] if v is not None)
    middle = l2[len(l2) // 2] if l2 else float("nan")
    common_set = [v for values in point.get("common", {}).values() for v in values]
    rough = f", common {sum(common_set) / len(common_set):.3f}" if common_set else ""
    return f"share {point['share']:.2f}, clean {point['clean']:.4f}, L2 {middle:.3f}{rough}"


def _taken(lock: Path) -> bool:
    """Whether this process is the first that wants the job."""
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def _section(name: str, o: argparse.Namespace) -> Section:
    section = cifar(o.device, o.cifar) if name == "cifar" and o.cifar else SECTIONS[name](o.device)
    return section if o.samples is None else smaller(section, o.samples)


def _value(text: str) -> Any:
    """A number or a list as Python writes it; anything else is a word."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas; a radius behind '@': pgd_l2@0.5")
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of a hardening: epochs=4")
    parser.add_argument("--tag", default="", help="a word in the names of a trial's files")
    parser.add_argument("--trials", action="store_true", help="each method with all its settings, instead of the best")
    parser.add_argument("--choose", type=Path, metavar="RAW", help="the best of these trials: RAW/settings.json")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="such a file; each method as usual if absent")
    parser.add_argument("--short", action="store_true", help="no curve, no attacks but ours")
    parser.add_argument("--samples", type=int, help="at most so many samples of each part, for a smoke test")
    parser.add_argument("--few", type=int, help="at most so many samples attacked")
    parser.add_argument("--minutes", type=float, default=1e9, help="no job is begun after so many")
    parser.add_argument(
        "--retrain", type=float, metavar="MINUTES", help="priors against the models of --raw, each so long"
    )
    parser.add_argument("--cifar", type=Path, help="CIFAR-10 training images, .npz")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--raw", type=Path, default=Path("runs/harden"), help="what was found, one file a job")
    parser.add_argument("--collect", type=Path, metavar="RAW", help="joins such files into results/raw/harden.json")
    parser.add_argument("--page", action="store_true", help="writes results/harden.md from results/raw/harden.json")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    o = parser.parse_args()
    if unknown := [name for name in o.only.split(",") if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    if o.quick:
        return common.finish(quick() | {"seconds": time.monotonic() - BEGAN})
    if o.choose is not None:
        best = choose(o.choose)
        return common.finish(
            {name: {method: about["chosen"] for method, about in of.items()} for name, of in best.items()}
        )
    if o.collect is not None:
        found = collect(o.collect)
        if (o.collect / "settings.json").exists():
            shutil.copy(o.collect / "settings.json", SETTINGS)
        for job, name in KEPT_WEIGHTS.items():
            if (o.collect / f"{job}.safetensors").exists():
                shutil.copy(o.collect / f"{job}.safetensors", common.WEIGHTS / f"{name}.safetensors")
        return common.finish({"jobs": found})
    if o.page:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        return common.finish(write_page(rules))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if o.retrain:
        return common.finish({"retrained": retrain(o), "seconds": time.monotonic() - BEGAN})
    common.finish({"jobs": work(o), "seconds": time.monotonic() - BEGAN})


KEPT_WEIGHTS = {
    "harden-cifar-ours-0": "hardened_resnet20",
    "harden-cifar-augmix-0": "augmix_resnet20",
    "harden-ecg-ours-0": "hardened_beats_cnn",
}


if __name__ == "__main__":
    main()
