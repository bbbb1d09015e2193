"""``SparseMultiheadAttention``: ``nn.MultiheadAttention`` whose four projections are sparse, each a matrix of its own."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear
from wirebound.nn.options import Slot
from wirebound.nn.sparse_layer import Matrix, SparseLayer, SparseModule
from wirebound.nn.trace import one_node, tracing
from wirebound.nn.weight import lazy_weight
from wirebound.wiring import Wiring

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def projection_weights(module: nn.MultiheadAttention) -> list[Tensor]:
    if module.in_proj_weight is not None:
        return [*module.in_proj_weight.chunk(3), module.out_proj.weight]
    return [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight, module.out_proj.weight]


class SparseMultiheadAttention(SparseModule):
    """Attention with sparse projections; made by ``sparsify`` from an ``nn.MultiheadAttention``, whose biases it copies."""

    dense_class = nn.MultiheadAttention
    arguments = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    # These answers keep nn.TransformerEncoderLayer from its fused path, which knows dense weights only.
    _qkv_same_embed_dim = False
    in_proj_bias = None
    q_proj: SparseLinear
    k_proj: SparseLinear
    v_proj: SparseLinear
    out_proj: SparseLinear
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    def __init__(self, dense: nn.MultiheadAttention, slots: Sequence[Slot]) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = dense.embed_dim, dense.num_heads, dense.head_dim
        self.kdim, self.vdim, self.batch_first = dense.kdim, dense.vdim, dense.batch_first
        self.dropout, self.add_zero_attn = dense.dropout, dense.add_zero_attn
        inputs, bias = (self.embed_dim, self.kdim, self.vdim, self.embed_dim), dense.in_proj_bias
        biases = [None] * 4 if bias is None else [*bias.chunk(3), dense.out_proj.bias]
        for name, n_in, slot, start in zip(PROJECTIONS, inputs, slots, biases, strict=True):
            layer = SparseLinear(n_in, self.embed_dim, start is not None, wiring=[slot])
            if layer.bias is not None and start is not None:
                layer.bias.requires_grad_(start.requires_grad)
                if not start.is_meta:
                    with torch.no_grad():
                        layer.bias.copy_(start)
            setattr(self, name, layer)
        for name in ("bias_k", "bias_v"):
            start = getattr(dense, name)
            if start is not None and start.is_meta:
                start = nn.Parameter(torch.empty_like(start, device=slots[0][0].theta.device))
                nn.init.xavier_normal_(start)  # as torch starts them
            self.register_parameter(name, start)
        self.train(dense.training)

    @classmethod
    def weight_names(cls, dense: nn.Module) -> list[str]:
        own = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return [*(name for name in own if getattr(dense, name) is not None), "out_proj.weight"]

    @classmethod
    def matrices_of(cls, dense: Any) -> list[Matrix]:
        return [Matrix.rows_first(*pair) for pair in zip(PROJECTIONS, projection_weights(dense), strict=True)]

    @classmethod
    def from_dense(cls, dense: Any, slots: Sequence[Slot]) -> nn.Module:
        return cls(dense, slots)

    @property
    def wiring(self) -> Wiring:  # type: ignore[override]
        return self.q_proj.wiring

    @property
    def in_proj_weight(self) -> Tensor | None:
        """As torch has it: the first three projections in one matrix, if their inputs are of one size."""
        if not self.kdim == self.vdim == self.embed_dim:
            return None
        layers = [self.q_proj, self.k_proj, self.v_proj]
        return torch.cat([s.weight for s in layers]) if tracing() else lazy_weight(layers, lambda matrix: matrix)

    @one_node
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
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
        k, v, keys = self.k_proj(key), self.v_proj(value), key.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (torch.cat([x, b.expand(len(x), 1, -1)], 1) for x, b in ((k, self.bias_k), (v, self.bias_v)))
        q, k, v = self._heads(self.q_proj(query)), self._heads(k), self._heads(v)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        mask = self._mask(attn_mask, key_padding_mask, q, keys, extra=k.shape[2] - keys)
        weights = None
        if need_weights:
            scores = (q * math.sqrt(1.0 / self.head_dim)) @ k.transpose(-2, -1)
            scores = scores if mask is None else scores + mask
            weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
            heads = weights @ v
        else:
            heads = F.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        y = self.out_proj(heads.transpose(1, 2).reshape(*query.shape[:2], self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _heads(self, projected: Tensor) -> Tensor:
        """[batch, length, embed] → [batch, heads, length, head]."""
        return projected.view(*projected.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

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
            if (shape := tuple(key_padding_mask.shape)) != (batch, keys):
                raise ValueError(f"the shape of key_padding_mask (={shape}) must be {(batch, keys)}")
            padded = _additive("key_padding_mask", key_padding_mask, q.dtype).view(batch, 1, 1, keys)
            mask = padded if mask is None else mask + padded
        return mask if mask is None or not extra else F.pad(mask, (0, extra))

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        biases = {"bias": module.q_proj.bias is not None, "add_bias_kv": module.bias_k is not None}
        return {name: getattr(module, name) for name in cls.arguments} | biases

    def fill_dense(self, twin: Any) -> None:
        layers = [self.q_proj, self.k_proj, self.v_proj, self.out_proj]
        for weight, layer in zip(projection_weights(twin), layers, strict=True):
            weight.copy_(layer.dense_weight())
        if layers[0].bias is not None:
            twin.in_proj_bias.copy_(torch.cat([cast(Tensor, layer.bias) for layer in layers[:3]]))
            twin.out_proj.bias.copy_(cast(Tensor, layers[3].bias))
        for mine, theirs in ((self.bias_k, twin.bias_k), (self.bias_v, twin.bias_v)):
            if mine is not None:
                theirs.copy_(mine)


def _additive(name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to add; True means "do not look there", as in torch."""
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise ValueError(f"the dtype of {name} (={mask.dtype}) must be bool or a floating-point one")
    return mask.to(dtype)


# What torch's transformer modules look at before they take a fused inference path, which reads dense weights.
_FAST_PATHS = ((nn.TransformerEncoderLayer, "activation_relu_or_gelu"), (nn.TransformerEncoder, "use_nested_tensor"))


def leave_fast_paths(model: nn.Module) -> None:
    """Keep torch's transformer modules that hold something sparse from their fused inference paths, in place."""
    for module in model.modules():
        for kind, name in _FAST_PATHS:
            if isinstance(module, kind) and any(isinstance(child, SparseLayer) for child in module.modules()):
                module.__dict__.setdefault(f"_wirebound_{name}", getattr(module, name))
                setattr(module, name, 0)


def restore_fast_paths(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for _, name in _FAST_PATHS:
            if f"_wirebound_{name}" in module.__dict__:
                setattr(module, name, module.__dict__.pop(f"_wirebound_{name}"))
    return model
