"""Training methods, one file each, all with the same interface: changing the method is changing one name."""

from wirebound.methods import drop, grow, when
from wirebound.methods.average import WeightAverage
from wirebound.methods.constant_rate import ConstantRate
from wirebound.methods.deep_r import DeepR
from wirebound.methods.dense import Dense
from wirebound.methods.evolve import Evolve
from wirebound.methods.fixed import Fixed
from wirebound.methods.l1_shrinkage import L1Shrinkage
from wirebound.methods.method import LayerInfo, Method, StepInfo
from wirebound.methods.pruning import MagnitudePruning
from wirebound.methods.rigl import RigL
from wirebound.methods.set import SET
from wirebound.methods.soft_deep_r import SoftDeepR

METHODS: dict[str, type[Method]] = {
    "deep-r": DeepR,
    "fixed": Fixed,
    "dense": Dense,
    "soft-deep-r": SoftDeepR,
    "constant-rate": ConstantRate,
    "l1-shrinkage": L1Shrinkage,
    "pruning": MagnitudePruning,
    "set": SET,
    "rigl": RigL,
}

__all__ = [
    "METHODS",
    "SET",
    "ConstantRate",
    "DeepR",
    "Dense",
    "Evolve",
    "Fixed",
    "L1Shrinkage",
    "LayerInfo",
    "MagnitudePruning",
    "Method",
    "RigL",
    "SoftDeepR",
    "StepInfo",
    "WeightAverage",
    "drop",
    "grow",
    "when",
]
