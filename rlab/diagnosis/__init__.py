"""Check model, data and palette with a few counted queries before a budget is spent."""

from rlab.diagnosis.examine import data_findings, examine
from rlab.diagnosis.report import Diagnosis, Finding, Severity, findings_table

__all__ = ["Diagnosis", "Finding", "Severity", "data_findings", "examine", "findings_table"]
