"""The words for how a sample ended."""

from enum import StrEnum


class Status(StrEnum):
    """How a sample ended; the value is stored in files."""

    SUCCEEDED = "succeeded"
    SPENT = "budget spent"
    SKIPPED = "skipped because already wrong"
    FAILED = "failed because the model answered NaN"
    LOST = "failed because the model did not answer the last query of the budget"
    UNVERIFIED = "failed because the stored input did not flip the model again"

    @property
    def label(self) -> str:
        """The word for the model's owner; files store the value, which is the attacker's word."""
        return {Status.SUCCEEDED: "flipped", Status.SPENT: "held"}.get(self, self.value)
