"""Training methods, one file each, all with the same interface: changing the method is changing one name."""

from wirebound.methods import drop, grow, when
from wirebound.methods.attach import attached
from wirebound.methods.average import WeightAverage
from wirebound.methods.cht import CHT
from wirebound.methods.constant_rate import ConstantRate
from wirebound.methods.declaration import METHODS, RunLength, Setting, register
from wirebound.methods.deep_r import DeepR
from wirebound.methods.dense import Dense
from wirebound.methods.evolve import Evolve
from wirebound.methods.fixed import Fixed
from wirebound.methods.gse import GSE
from wirebound.methods.l1_shrinkage import L1Shrinkage
from wirebound.methods.method import LayerInfo, Method, StepInfo
from wirebound.methods.pruning import MagnitudePruning
from wirebound.methods.rigl import RigL
from wirebound.methods.set import SET
from wirebound.methods.soft_deep_r import SoftDeepR
from wirebound.methods.top_k import TopK

for _method in (DeepR, Fixed, Dense, SoftDeepR, ConstantRate, L1Shrinkage, MagnitudePruning, SET, RigL, GSE, CHT, TopK):
    register(_method)

__all__ = [
    "CHT", "GSE", "METHODS", "SET", "ConstantRate", "DeepR", "Dense", "Evolve", "Fixed", "L1Shrinkage", "LayerInfo", "MagnitudePruning",
    "Method", "RigL", "RunLength", "Setting", "SoftDeepR", "StepInfo", "TopK", "WeightAverage", "attached", "drop", "grow",
    "register", "when",
]  # fmt: skip
