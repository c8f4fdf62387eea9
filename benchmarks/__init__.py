"""Benchmarks, one package for each claim: `python -m benchmarks.CLAIM [--quick] [--only CASE] [--page] [--device cuda]`."""
