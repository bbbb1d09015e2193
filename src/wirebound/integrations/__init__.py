"""Callbacks for training frameworks, which none of them needs: ``optimizer.step()`` is the step of the method."""

import warnings

from torch import optim

from wirebound.methods.method import Method

__all__ = ["RewiringOptimizer"]


def RewiringOptimizer(method: Method) -> optim.Optimizer:  # it was a class
    """The optimiser of ``method``, whose own ``step`` is the method's. Deprecated: use ``method.optimizer``."""
    warnings.warn("RewiringOptimizer(method) is method.optimizer: give that to the trainer", DeprecationWarning, stacklevel=2)
    return method.optimizer
