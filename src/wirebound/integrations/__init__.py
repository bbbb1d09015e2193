"""Training frameworks, each an optional extra; plain PyTorch needs none of this.

``RewiringOptimizer`` is for every trainer that calls ``optimizer.step()`` itself. ``lightning`` and ``huggingface`` are
modules of their own, so that importing this one needs neither framework.
"""

from wirebound.integrations.optimizer import RewiringOptimizer

__all__ = ["RewiringOptimizer"]
