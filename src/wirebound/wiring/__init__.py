"""A wiring is one budget: K active connections over one matrix or many."""

from wirebound.ops.faults import WiringError
from wirebound.wiring.budget import Allocation, allocate, settle_budget
from wirebound.wiring.constraints import Constraints
from wirebound.wiring.draw import births_of_layers, draw_dormant, draw_dormant_in_layers, draw_newborns
from wirebound.wiring.layers import LayerShape, mean_of
from wirebound.wiring.wiring import GradientSource, Wiring

__all__ = [
    "Allocation", "Constraints", "GradientSource", "LayerShape", "Wiring", "WiringError", "allocate",
    "births_of_layers", "draw_dormant", "draw_dormant_in_layers", "draw_newborns", "mean_of", "settle_budget",
]  # fmt: skip
