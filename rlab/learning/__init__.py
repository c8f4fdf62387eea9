"""Simulators: small networks that learn from a victim's answers to stand in for it, at no query."""

ENOUGH = 0.75  # agreement of students with the model; a search does not use students that agree less
