"""Audits: the whole pipeline from one declared file, with requirements that pass or fail."""

from rlab.auditing.config import AuditOptions
from rlab.auditing.run import AuditResult, run_audit

__all__ = ["AuditOptions", "AuditResult", "run_audit"]
