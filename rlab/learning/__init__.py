"""Simulators: small networks that learn from a victim's answers to stand in for it, at no query."""
