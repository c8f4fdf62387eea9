"""Pages from stored runs: one HTML file each, with everything inside."""

from rlab.report.page import Page, Section, write_page
from rlab.report.run import report_run

__all__ = ["Page", "Section", "report_run", "write_page"]
