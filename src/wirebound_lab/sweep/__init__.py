"""Many training runs over settings and seeds: on this machine, or on several through a shared Optuna storage."""

from wirebound_lab.sweep.outcome import Outcome
from wirebound_lab.sweep.plan import Plan, Trial, make_plan

__all__ = ["Outcome", "Plan", "Trial", "make_plan"]
