"""A look at model, data and palette before a budget is spent, for a handful of counted queries."""

from rlab.diagnosis.examine import data_findings, examine
from rlab.diagnosis.report import Diagnosis, Finding, Severity, findings_table

__all__ = ["Diagnosis", "Finding", "Severity", "data_findings", "examine", "findings_table"]
