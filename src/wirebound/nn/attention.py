"""``SparseMultiheadAttention``: ``nn.MultiheadAttention`` whose four projections are sparse.

The projections are matrices of their own (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``), also where torch keeps the
first three in one: queries may come from elsewhere than keys, and a row that nobody asks for need not be computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.trace import one_node, tracing
from wirebound.nn.weight import lazy_weight
from wirebound.wiring import Wiring

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def projection_weights(module: nn.MultiheadAttention) -> list[Tensor]:
    """The four matrices of a dense attention, in the order of ``PROJECTIONS``."""
    if module.in_proj_weight is not None:
        return [*module.in_proj_weight.chunk(3), module.out_proj.weight]
    return [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight, module.out_proj.weight]


class SparseMultiheadAttention(nn.Module):
    """Attention with sparse projections; made by ``sparsify`` from an ``nn.MultiheadAttention``.

    Args:
        dense: the module to replace; its biases are copied.
        slots: the wiring and the part of it for each of the four projections.
    """

    requires_grad_ = SparseLayer.requires_grad_
    # What nn.TransformerEncoderLayer asks before it takes its fused path, which knows dense weights only: these
    # answers keep it from it.
    _qkv_same_embed_dim = False
    in_proj_bias = None

    q_proj: SparseLinear
    k_proj: SparseLinear
    v_proj: SparseLinear
    out_proj: SparseLinear
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(self, dense: nn.MultiheadAttention, slots: Sequence[tuple[Wiring, int]]) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = dense.embed_dim, dense.num_heads, dense.head_dim
        self.kdim, self.vdim = dense.kdim, dense.vdim
        self.dropout, self.batch_first, self.add_zero_attn = dense.dropout, dense.batch_first, dense.add_zero_attn
        inputs = (self.embed_dim, self.kdim, self.vdim, self.embed_dim)
        bias = dense.in_proj_bias
        biases = [None] * 4 if bias is None else [*bias.chunk(3), dense.out_proj.bias]
        for name, n_in, (wiring, part), start in zip(PROJECTIONS, inputs, slots, biases, strict=True):
            layer = SparseLinear(
                n_in, self.embed_dim, start is not None, wiring=wiring, part=part, owner=part == 0
            )
            if layer.bias is not None and start is not None:
                layer.bias.requires_grad_(start.requires_grad)
                if not start.is_meta:
                    with torch.no_grad():
                        layer.bias.copy_(start)
            setattr(self, name, layer)
        theta = slots[0][0].theta
        for name in ("bias_k", "bias_v"):
            start = getattr(dense, name)
            if start is not None and start.is_meta:
                start = nn.Parameter(torch.empty_like(start, device=theta.device))
                nn.init.xavier_normal_(start)  # as torch starts them
            self.register_parameter(name, start)
        self.train(dense.training)

    @property
    def in_proj_weight(self) -> Tensor | None:
        """As torch has it: the first three projections in one matrix, if their inputs are of one size."""
        if not self.kdim == self.vdim == self.embed_dim:
            return None
        layers = [self.q_proj, self.k_proj, self.v_proj]
        return torch.cat([s.weight for s in layers]) if tracing() else lazy_weight(layers, lambda matrix: matrix)

    @one_node
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As ``nn.MultiheadAttention``; ``is_causal`` is a hint about ``attn_mask``, which must be given with it."""
        if query.is_nested or key.is_nested or value.is_nested:
            raise TypeError("SparseMultiheadAttention takes no nested tensors: pad, and give key_padding_mask")
        if is_causal and attn_mask is None:
            raise ValueError("is_causal (=True) needs the attn_mask that it is a hint about")
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        k, v = self.k_proj(key), self.v_proj(value)
        padding = key.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            batch = key.shape[0]
            k = torch.cat([k, self.bias_k.expand(batch, 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(batch, 1, -1)], 1)
        q, k, v = self._heads(self.q_proj(query)), self._heads(k), self._heads(v)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        mask = self._mask(attn_mask, key_padding_mask, q, padding, extra=k.shape[2] - padding)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * math.sqrt(1.0 / self.head_dim)) @ k.transpose(-2, -1)
            scores = scores if mask is None else scores + mask
            weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
            heads = weights @ v
        else:
            heads = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.out_proj(heads.transpose(1, 2).reshape(*query.shape[:2], self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _heads(self, projected: Tensor) -> Tensor:
        """[batch, length, embed] → [batch, heads, length, head]."""
        batch, length = projected.shape[:2]
        return projected.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, keys: int, extra: int
    ) -> Tensor | None:
        """Both masks as numbers to add to the scores [batch, heads, queries, keys]; ``extra`` keys are never masked."""
        batch, _, queries, _ = q.shape
        mask: Tensor | None = None
        if attn_mask is not None:
            wanted = ((queries, keys), (batch * self.num_heads, queries, keys))
            if attn_mask.shape not in wanted:
                raise ValueError(f"the shape of attn_mask (={tuple(attn_mask.shape)}) must be {wanted[0]} or {wanted[1]}")
            mask = _additive("attn_mask", attn_mask, q.dtype)
            if mask.dim() == 3:
                mask = mask.view(batch, self.num_heads, queries, keys)
        if key_padding_mask is not None:
            if key_padding_mask.shape != (batch, keys):
                shape = tuple(key_padding_mask.shape)
                raise ValueError(f"the shape of key_padding_mask (={shape}) must be {(batch, keys)}")
            padded = _additive("key_padding_mask", key_padding_mask, q.dtype).view(batch, 1, 1, keys)
            mask = padded if mask is None else mask + padded
        return mask if mask is None or not extra else F.pad(mask, (0, extra))

    def dense_twin(self) -> nn.MultiheadAttention:
        """The ordinary torch attention with these weights."""
        layers = [self.q_proj, self.k_proj, self.v_proj, self.out_proj]
        theta = layers[0].wiring.theta
        twin = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            layers[0].bias is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
            device=theta.device,
            dtype=theta.dtype,
        )
        with torch.no_grad():
            for weight, layer in zip(projection_weights(twin), layers, strict=True):
                weight.copy_(layer.dense_weight())
            if layers[0].bias is not None:
                twin.in_proj_bias.copy_(torch.cat([cast(Tensor, layer.bias) for layer in layers[:3]]))
                twin.out_proj.bias.copy_(cast(Tensor, layers[3].bias))
            for mine, theirs in ((self.bias_k, twin.bias_k), (self.bias_v, twin.bias_v)):
                if mine is not None and theirs is not None:
                    theirs.copy_(mine)
        return twin.train(self.training)


def _additive(name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to add; True means "do not look there", as in torch."""
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise ValueError(f"the dtype of {name} (={mask.dtype}) must be bool or a floating-point one")
    return mask.to(dtype)


def leave_fast_paths(model: nn.Module) -> None:
    """Keep torch's transformer layers that hold something sparse from their fused inference path, in place: it reads
    dense weights that are not there any more."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _has_sparse(module):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder) and _has_sparse(module) and module.use_nested_tensor:
            module.use_nested_tensor = False
            module.__dict__["_wirebound_nested"] = True


def restore_fast_paths(model: nn.Module) -> nn.Module:
    """What ``leave_fast_paths`` did, undone, for a model that becomes dense."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            # What its constructor and __setstate__ do: 1 for ReLU, 2 for GELU, 0 for anything else.
            relu = module.activation is F.relu or isinstance(module.activation, nn.ReLU)
            gelu = module.activation is F.gelu or isinstance(module.activation, nn.GELU)
            module.activation_relu_or_gelu = 1 if relu else 2 if gelu else 0
        if isinstance(module, nn.TransformerEncoder) and module.__dict__.pop("_wirebound_nested", False):
            module.use_nested_tensor = True
    return model


def _has_sparse(module: nn.Module) -> bool:
    return any(isinstance(child, SparseLayer) for child in module.modules())
