"""Two examples for the help of every command: what you type, and what it does."""

from __future__ import annotations

from itertools import groupby

_ALL = (
    ("rlab demo", "Attack three small models and write one page about them."),
    ("rlab demo --samples 8 --out runs/demo", "Use fewer samples and choose the folder."),
    ("rlab init photos --out photos.yaml", "Inspect a folder of images and write a configuration."),
    ("rlab init beats.npz --model my_module:net", "Also write the model into the configuration."),
    ("rlab doctor demo:digits demo:digits", "Check a model and data that come with rlab."),
    ("rlab doctor my_module:net photos -M mean=[0.5] -M std=[0.5]", "Check your model with its normalisation."),
    ("rlab attack demo:digits demo:digits --limit 12", "Attack twelve digits and write a page."),
    ("rlab attack my_module:net photos --budget 300 -p 'gaussian_blur dead_pixel'", "Choose budget and filters."),
    ("rlab learn my_module:net photos --out runs/students", "Train students on the model's answers."),
    ("rlab learn --from runs/attack-1 --out runs/students", "Learn from the answers of an earlier attack."),
    ("rlab show runs/digits", "Print the summary and the first samples."),
    ("rlab show runs/digits --samples 3 --pictures 3", "Also draw three samples."),
    ("rlab compare demo:digits demo:digits --policies auto,random", "Compare two search policies."),
    ("rlab compare my_module:net photos --attacks 'square_min hopskipjump'", "Add attacks from papers."),
    ("rlab explain demo:ecg demo:ecg --limit 4", "Show where the model looks in four beats."),
    ("rlab explain my_module:net photos --compare --method belief,rise", "Score two methods."),
    ("rlab benchmark make demo:digits demo:digits --limit 20", "Store the smallest flip of each sample."),
    ("rlab benchmark make none photos --ladder severity:1..5", "Use no model, only severities."),
    ("rlab benchmark verify bench/digits", "Check every file of a benchmark."),
    ("rlab benchmark verify bench/digits -m digits=demo:digits", "Also check that the model still errs."),
    ("rlab benchmark run bench/digits -m my=my_module:net", "Grade a model."),
    ("rlab benchmark run bench/digits -m my_module:net --require flip=0.5", "Exit with 1 if its accuracy is lower."),
    ("rlab corrupt demo:digits demo:digits", "Measure a model under fifteen kinds of corruptions."),
    ("rlab corrupt my_module:net photos --baseline runs/old --worst", "Also show the mCE and the worst case."),
    ("rlab harden demo:digits demo:digits", "Train a model on its failures, and measure it before and after."),
    ("rlab harden my_module:net photos --epochs 5 --test held-out", "Choose the epochs and test on other data."),
    ("rlab audit audit.yaml --out runs/audit", "Run the pipeline and check the file's requirements."),
    ("rlab audit audit.yaml --device cuda --json", "Use a GPU, and print the verdict as JSON."),
    ("rlab report runs/digits", "Write the page of a run again."),
    ("rlab report runs/before runs/after --out changes.html", "Compare two runs on a page."),
    ("rlab serve runs", "Browse the runs in this folder."),
    ("rlab serve runs --model demo:digits", "Also start runs from the browser."),
    ("rlab repair runs/digits", "Keep what is intact in a damaged folder."),
    ("rlab repair bench/digits", "Repair a benchmark."),
    ("rlab train agents/images.yaml --out runs/prior", "Train the prior that a file declares."),
    ("rlab train agents/images.yaml --minutes 5 --device cuda --out runs/prior", "Train for five minutes on a GPU."),
    ("rlab examples", "List the examples."),
    ("rlab examples audit", "Write one of them to the current folder."),
    ("rlab agents", "List the priors and agents."),
    ("rlab agents images", "Show what one was trained on."),
    ("rlab filters", "List all filters."),
    ("rlab filters --rank 1", "List only those for signals."),
)


def _command(example: tuple[str, str]) -> str:
    """'rlab benchmark make none photos' -> 'benchmark make'."""
    _, first, second, *_ = [*example[0].split(), ""]
    return f"{first} {second}" if first == "benchmark" else first


EXAMPLES = {name: tuple(own) for name, own in groupby(_ALL, _command)}
