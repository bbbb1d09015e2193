"""The paper's theory as running code, for problems so small that the exact answer can be computed.

    problems.py   energies E(θ) with a known gradient, separable or a tiny logistic regression; all c with K ones
    chains.py     Algorithm 3 (the formal chain), Algorithm 1 (DEEP R) and Algorithm 2 (soft-DEEP R), many at once
    law.py        what they should sample, by enumeration and quadrature; total variation with its sampling error
    smooth.py     the smooth mapping from θ to the weight
"""

from .chains import Record, deep_r_step, draw_constraint, formal_step, lazy_step, run, soft_deep_r_step
from .law import Distance, Grid, Law, distance, formal_law, soft_law, strict_law, total_variation, wall
from .problems import Logistic, Problem, Quadratic, architectures, compatible_counts, set_number
from .smooth import smooth_gradient, smooth_weight

__all__ = [
    "Distance", "Grid", "Law", "Logistic", "Problem", "Quadratic", "Record", "architectures", "compatible_counts",
    "deep_r_step", "distance", "draw_constraint", "formal_law", "formal_step", "lazy_step", "run", "set_number",
    "smooth_gradient", "smooth_weight", "soft_deep_r_step", "soft_law", "strict_law", "total_variation", "wall",
]  # fmt: skip
