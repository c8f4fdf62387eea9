"""Directions in which a model's margin may fall: from a trained network or from models that you have."""
