"""Audits: the whole pipeline from one file, with requirements that pass or fail."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlab.auditing.config import AuditOptions
from rlab.auditing.report import AuditResult
from rlab.auditing.run import run_audit
from rlab.progress import showing
from rlab.storage.config import check, read_config

__all__ = ["AuditOptions", "AuditResult", "audit", "run_audit"]


def audit(
    file: str | os.PathLike[str] | Mapping[str, Any], out: str | os.PathLike[str], *, progress: bool = True
) -> AuditResult:
    """Run the pipeline that a YAML or TOML file or a mapping declares, and check its requirements; see docs/audit.md.

    Each stage shows a bar, unless you pass progress=False.
    """
    declared = file if isinstance(file, Mapping) else read_config(Path(file))
    with showing(progress):
        return run_audit(check(AuditOptions, declared, "the audit"), Path(out), progress=progress)
