"""Run folders and experiments in, one self-contained HTML page out. Reads their files and nothing else, with
nothing but the standard library, so it can be pointed at runs from another machine."""

from .experiments import Experiment, Sources, find_sources, read_experiment
from .page import write_report
from .runs import ReportError, Run, find_runs, read_run

__all__ = ["Experiment", "ReportError", "Run", "Sources", "find_runs", "find_sources", "read_experiment", "read_run",
           "write_report"]  # fmt: skip
