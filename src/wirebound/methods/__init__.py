"""Training methods, one file each, all with the same interface: changing the method is changing one name."""

from wirebound.methods import drop, grow, when
from wirebound.methods.deep_r import DeepR
from wirebound.methods.dense import Dense
from wirebound.methods.evolve import Evolve
from wirebound.methods.fixed import Fixed
from wirebound.methods.method import LayerInfo, Method, StepInfo
from wirebound.methods.rigl import RigL
from wirebound.methods.set import SET

METHODS: dict[str, type[Method]] = {
    "deep-r": DeepR,
    "fixed": Fixed,
    "dense": Dense,
    "set": SET,
    "rigl": RigL,
}

__all__ = [
    "METHODS",
    "SET",
    "DeepR",
    "Dense",
    "Evolve",
    "Fixed",
    "LayerInfo",
    "Method",
    "RigL",
    "StepInfo",
    "drop",
    "grow",
    "when",
]
