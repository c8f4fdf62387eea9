"""How a sample ended, in words."""

from enum import StrEnum


class Status(StrEnum):
    """How a sample ended, in words."""

    SUCCEEDED = "succeeded"
    SPENT = "budget spent"
    SKIPPED = "skipped because already wrong"
    FAILED = "failed because the model answered NaN"
    LOST = "failed because the model did not answer the last query of the budget"
    UNVERIFIED = "failed because the stored input did not flip the model again"

    @property
    def told(self) -> str:
        """As the model's owner reads it; stored are the attack's own words."""
        return {Status.SUCCEEDED: "flipped", Status.SPENT: "held"}.get(self, self.value)
