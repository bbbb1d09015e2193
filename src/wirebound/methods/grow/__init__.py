"""Grow rules: which dormant connections take the place of those that went.

The gradient of dormant connections is never there as a whole: it is computed a block of columns at a time, of which
only the best are kept, or at some candidates only. A rule of one's own is a function of a ``Growth`` that returns sorted
dormant positions; with ``needs_gradient = True`` it finds the sources of the gradient in ``growth.sources``.
"""

from wirebound.methods.grow.gradient import Best, Gradient
from wirebound.methods.grow.growth import GrowRule, Growth, Random
from wirebound.methods.grow.sampled import SampledGradient
from wirebound.methods.grow.topological import Topological

__all__ = ["Best", "Gradient", "GrowRule", "Growth", "Random", "SampledGradient", "Topological"]
