"""Nodes of the autograd graph, with as little around them as possible.

A call of ``Function.apply`` first looks for function transforms, which takes longer than a small layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as transforms_active

__all__ = ["direct", "transforms_active"]


def direct(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply``, for use while no function transform is active."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]
