"""What may go into a sparse layer. Kernels get addresses, so everything else about a tensor is settled here."""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.wiring.trust import is_plain


def settle_input(x: Tensor, theta: Tensor, layer: object, what: str = "the input") -> Tensor:
    """The input as a kernel may read it: plain, on the device and of the dtype of θ; or an error that says what it is.

    Under autocast another floating dtype is converted: sparse layers compute in the precision of their parameters.
    """
    if type(x) is not Tensor and not is_plain(x):
        raise TypeError(
            f"{type(layer).__name__} takes tensors with numbers in memory, not {type(x).__name__}: "
            "use wb.to_dense(model) where tensors are fake, traced or sharded"
        )
    if x.device != theta.device:
        raise ValueError(
            f"{what} is on {x.device}, {type(layer).__name__} on {theta.device}: move one of them with .to()"
        )
    if x.dtype is not theta.dtype:
        if not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"the dtype of {what} (={x.dtype}) must be that of the layer (={theta.dtype})")
        x = x.to(theta.dtype)
    if x.layout is not torch.strided:
        raise ValueError(f"{what} of {type(layer).__name__} (={x.layout}) must be dense: use .to_dense()")
    return x.resolve_neg() if x.is_neg() else x


def settle_bias(bias: Tensor, theta: Tensor, length: int, layer: object) -> Tensor:
    """The bias as a kernel may read it."""
    if bias.dtype is not theta.dtype or bias.device != theta.device or bias.shape != (length,) or not is_plain(bias):
        raise ValueError(
            f"the bias of {type(layer).__name__} ({type(bias).__name__}, {bias.dtype} of shape {tuple(bias.shape)} on "
            f"{bias.device}) must be {theta.dtype} of shape ({length},) on {theta.device}, as its θ is: convert or move the "
            "whole model, not a layer of it"
        )
    return bias if bias.is_contiguous() else bias.contiguous()


def settle_gradient(dy: Tensor) -> Tensor:
    """The gradient of an output as a kernel may read it: autograd has settled all but a sign that is still to be taken."""
    return dy.resolve_neg() if dy.is_neg() else dy
