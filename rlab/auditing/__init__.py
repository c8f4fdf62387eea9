"""Audits: the whole pipeline from one declared file, with requirements that pass or fail."""

from rlab.auditing.config import AuditConfig, make_audit_config
from rlab.auditing.judge import Outcome
from rlab.auditing.requirements import Rule, parse_rule
from rlab.auditing.run import Audit, report_audit, run_audit

__all__ = ["Audit", "AuditConfig", "Outcome", "Rule", "make_audit_config", "parse_rule", "report_audit", "run_audit"]
