"""The belief search: an agent that remembers what it has learned of the model at hand."""

from rlab.policies.belief.policy import BeliefPolicy

__all__ = ["BeliefPolicy"]
