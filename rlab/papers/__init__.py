"""Agents of published papers, each with its training: baselines beside the belief search, not the default."""
