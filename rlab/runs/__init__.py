"""Runs: their options, their chunks, their workers, and how a stopped run resumes."""
