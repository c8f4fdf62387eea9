"""A look at model, data and palette before a budget is spent, for a handful of counted queries."""

from rlab.diagnosis.examine import examine
from rlab.diagnosis.report import Finding, Level, Report

__all__ = ["Finding", "Level", "Report", "examine"]
