"""The best labels of a sparse last layer with very many outputs, a part of the labels at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.nn.inputs import settle_bias
from wirebound.nn.label_loss import require_sparse_linear, settle_hidden
from wirebound.nn.label_parts import labels_at_a_time, layer_arrays, parts_of
from wirebound.nn.linear import SparseLinear
from wirebound.ops.faults import DormantThetaError

_EXAMPLES_AT_A_TIME = 256


class TopLabels(NamedTuple):
    """The k best labels of each example, best first, and their logits."""

    values: Tensor  # [..., k]
    indices: Tensor  # [..., k]


@torch.no_grad()
def top_labels(hidden: Tensor, layer: SparseLinear, k: int = 1, *, chunk: int | None = None) -> TopLabels:
    """``layer(hidden).topk(k)`` without the logits of all labels at once: O(K + examples · k) memory and no gradient.

    Args:
        hidden: what goes into the last layer, [..., in_features].
        layer: the last layer, with one output for each label.
        k: how many labels of each example.
        chunk: labels at a time; None: about a million logits.
    """
    require_sparse_linear(layer)
    n_out = layer.out_features
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n_out:
        raise ValueError(f"k (={k}) must be a whole number in [1, out_features (={n_out})]")
    theta, index = layer_arrays(layer)
    bias, rows = settle_bias(layer.bias, theta, n_out, layer), settle_hidden(hidden, layer, theta)
    chunk = labels_at_a_time(min(len(rows), _EXAMPLES_AT_A_TIME), n_out, chunk)
    values, indices = rows.new_empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
    for part in parts_of(index, n_out, chunk):
        own = None if bias is None else bias.index_select(0, part.labels)
        found: list[tuple[Tensor, Tensor]] = []
        for x in rows.split(_EXAMPLES_AT_A_TIME):
            try:
                logits = part.logits(x, theta, own)
            except DormantThetaError:
                theta = layer.fast_wiring.dormant_as_zero(theta)
                logits = part.logits(x, theta, own)
            best = logits.topk(min(k, logits.shape[1]))
            found.append((best.values, part.labels[best.indices]))
        if not found:
            continue
        values = torch.cat([values, torch.cat([one for one, _ in found])], 1)
        indices = torch.cat([indices, torch.cat([one for _, one in found])], 1)
        best = values.topk(min(k, values.shape[1]))
        values, indices = best.values, indices.gather(1, best.indices)
    if not len(rows):
        values, indices = values.new_empty(0, k), indices.new_empty(0, k)
    shape = (*hidden.shape[:-1], k)
    return TopLabels(values.reshape(shape), indices.reshape(shape))
