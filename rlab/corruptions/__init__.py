"""The common corruptions: `corrupt(x, "fog", 3)` for a batch, and the accuracy of a model under all of them (`rlab.corrupt`)."""

from rlab.corruptions.kinds import CLIPS, EXTRA, KINDS, LEVELS, SIGNALS, corrupt

__all__ = ["CLIPS", "EXTRA", "KINDS", "LEVELS", "SIGNALS", "corrupt"]
