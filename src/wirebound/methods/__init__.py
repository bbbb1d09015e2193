"""Training methods, one file each, all with the same interface: changing the method is changing one name."""

from wirebound.methods.deep_r import DeepR
from wirebound.methods.dense import Dense
from wirebound.methods.fixed import Fixed
from wirebound.methods.method import LayerInfo, Method, StepInfo

METHODS: dict[str, type[Method]] = {"deep-r": DeepR, "fixed": Fixed, "dense": Dense}

__all__ = ["METHODS", "DeepR", "Dense", "Fixed", "LayerInfo", "Method", "StepInfo"]
