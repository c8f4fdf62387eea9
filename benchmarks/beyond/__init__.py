"""Detectors, segmenters and regressors."""
