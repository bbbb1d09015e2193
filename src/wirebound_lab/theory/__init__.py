"""The paper's theory as running code, for problems so small that the exact answer can be computed.

    problems.py        energies E(θ) with a known gradient: separable ones and a tiny logistic regression
    architectures.py   all constraint vectors with exactly K ones, and the uniform draw among compatible ones
    chains.py          Algorithm 3 (the formal chain), Algorithm 1 (DEEP R) and Algorithm 2 (soft-DEEP R), many at once
    law.py             what they should sample, by enumeration and quadrature
    distance.py        total variation with its sampling error
    smooth.py          the smooth mapping from θ to the weight
"""

from wirebound_lab.theory.architectures import architectures, compatible_counts, draw_constraint, set_number
from wirebound_lab.theory.chains import Record, deep_r_step, formal_step, run, soft_deep_r_step
from wirebound_lab.theory.distance import Distance, distance, total_variation
from wirebound_lab.theory.law import Grid, Law, formal_law, soft_law, strict_law, wall
from wirebound_lab.theory.problems import Logistic, Problem, Quadratic, Separable
from wirebound_lab.theory.smooth import smooth_gradient, smooth_weight

__all__ = [
    "Distance",
    "Grid",
    "Law",
    "Logistic",
    "Problem",
    "Quadratic",
    "Record",
    "Separable",
    "architectures",
    "compatible_counts",
    "deep_r_step",
    "distance",
    "draw_constraint",
    "formal_law",
    "formal_step",
    "run",
    "set_number",
    "smooth_gradient",
    "smooth_weight",
    "soft_deep_r_step",
    "soft_law",
    "strict_law",
    "total_variation",
    "wall",
]
