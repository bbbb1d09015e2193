"""Run folders in, one self-contained HTML page out.

This package reads run folders and nothing else: it imports no other part of wirebound, needs nothing
beyond the standard library, and so can be pointed at runs from another machine.
"""

from .page import write_report
from .runs import ReportError, Run, find_runs, read_run

__all__ = ["ReportError", "Run", "find_runs", "read_run", "write_report"]
