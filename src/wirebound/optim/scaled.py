"""Gradients that ``GradScaler`` leaves scaled, because it believes that the optimiser's own step divides by the scale.

It does so for ``fused=True`` optimisers: it puts the scale and whether a gradient is infinite on the optimiser and calls
its step. θ is moved by a method, so the method has to take both over.
"""

from __future__ import annotations

import torch
from torch import optim


def unscale_(optimizer: optim.Optimizer) -> bool:
    """Divide all gradients by the scale that the optimiser was given, if any; False if this step is to be left out."""
    scale = getattr(optimizer, "grad_scale", None)
    found = getattr(optimizer, "found_inf", None)
    if scale is None and found is None:
        return True
    # The scaler deletes both afterwards, so they stay; None means that there is nothing left to divide by.
    optimizer.grad_scale = optimizer.found_inf = None  # type: ignore[attr-defined]
    if found is not None and float(found):
        return False
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if scale is not None and parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))
    return True
