from pathlib import Path


def write_audit_page(folder, config, found, outcomes):
    return Path(folder) / "report.html"
