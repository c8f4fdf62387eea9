"""Hardening: a model is trained on what fools it, and measured before and after. `rlab.harden` is in `run.py`."""
