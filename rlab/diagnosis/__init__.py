"""Check model, data and palette with a few counted queries before a budget is spent."""

from rlab.diagnosis.data import data_checks
from rlab.diagnosis.examine import examine
from rlab.diagnosis.report import Diagnosis, Finding, Severity, findings_table

__all__ = ["Diagnosis", "Finding", "Severity", "data_checks", "examine", "findings_table"]
