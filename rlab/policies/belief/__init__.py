"""The belief search: a policy that learns about the model from its answers."""

from rlab.policies.belief.policy import Belief

__all__ = ["Belief"]
