"""Black-box robustness for signals, images and video: the few patches whose natural distortion flips a classifier."""

# `python -m rlab` imports this file while the current folder is still first on sys.path, so it must import nothing: a typing.py
# among somebody's data would run. rlab/__main__.py removes the folder.
__version__ = "0.3.0.dev0"

# Every public name and its module, which is imported on first use, so that `import rlab` takes no time.
# `make stubs` writes the same names for type checkers.
PUBLIC = {
    "Attack": "rlab.core.attack",
    "AttackResult": "rlab.results.result",
    "Batch": "rlab.data.batch",
    "Benchmark": "rlab.benchmarking.folder",
    "CallableVictim": "rlab.victims.callables",
    "Explanation": "rlab.explanation.base",
    "Filter": "rlab.filters.base",
    "HttpVictim": "rlab.victims.http",
    "InputError": "rlab.errors",
    "OnnxVictim": "rlab.victims.callables",
    "Palette": "rlab.filters.palette",
    "PatchGrid": "rlab.core.grid",
    "SklearnVictim": "rlab.victims.callables",
    "Simulator": "rlab.learning.simulator",
    "Source": "rlab.data.source",
    "Status": "rlab.results.result",
    "TorchVictim": "rlab.victims.torch_module",
    "Victim": "rlab.victims.base",
    "VictimError": "rlab.errors",
    "attack": "rlab.verbs",
    "audit": "rlab.auditing",
    "benchmark": "rlab.verbs",
    "compare": "rlab.verbs",
    "compare_hardening": "rlab.hardening.comparison",
    "demo_victim": "rlab.victims.zoo",
    "doctor": "rlab.diagnosis.examine",
    "harden": "rlab.hardening.run",
    "explain": "rlab.verbs",
    "explain_batch": "rlab.explanation.run",
    "explain_flip": "rlab.explanation.run",
    "explain_result": "rlab.explanation.run",
    "learn": "rlab.runs.learn",
    "load": "rlab.data.load",
    "load_victim": "rlab.victims.resolve",
    "read_simulator": "rlab.learning.simulator",
    "make_benchmark": "rlab.benchmarking.make",
    "register": "rlab.filters.base",
    "run_benchmark": "rlab.benchmarking.run",
    "train": "rlab.verbs",
    "verify_benchmark": "rlab.benchmarking.verify",
}

__all__ = ["__version__", *PUBLIC]


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'rlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
