"""Hardening: train a model on samples that fool it, and measure it before and after. `rlab.harden` is in `run.py`."""
