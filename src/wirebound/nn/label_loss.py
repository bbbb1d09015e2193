"""Cross-entropy of a sparse last layer with very many outputs, without the [batch, labels] logits.

    all labels      − z_y + log Σ_j exp z_j, the sum taken a part of the labels at a time; the backward pass computes the
                    logits again
    sampled labels  − z_y + log Σ_{j in S} exp(z_j − log q_j), S the labels of the batch (q = 1) and drawn ones

Memory is O(K + batch · labels at a time), time O(K + batch · connections of the labels that are looked at). Gradients are
those of the formula, exactly; connections of labels outside of S have a gradient of exactly 0.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn.inputs import direct, in_memory, refuse_second_derivative, settle_bias, settle_input
from wirebound.nn.label_draws import check_draws, draw_labels
from wirebound.nn.label_parts import LabelGradient, LabelPart, labels_at_a_time, layer_arrays, part_of, parts_of
from wirebound.nn.linear import SparseLinear
from wirebound.nn.trace import in_graph, recorded
from wirebound.nn.traced import run_outside
from wirebound.ops.faults import DormantThetaError
from wirebound.ops.layout import LayerIndex

REDUCTIONS = ("mean", "sum", "none")


def _leave_source(layer: Any, x: Tensor, dy: Tensor, labels: Tensor) -> None:
    """For methods that grow by the gradient of dormant connections; these keep the logits' gradient until their step."""
    if (watch := layer.fast_wiring.watch) is not None:
        watch.setdefault(layer.layer_id, []).append(LabelGradient(x, dy, labels, layer.out_features))


class _PartLogits(torch.autograd.Function):
    """Logits of some labels, [batch, labels]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, layer: Any, part: LabelPart) -> Tensor:
        ctx.save_for_backward(x, theta)
        ctx.made_of = (layer, part)
        return part.logits(x, theta, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        dy, (layer, part), (x, theta) = in_memory(grads[0]), ctx.made_of, ctx.saved_tensors
        refuse_second_derivative("label_cross_entropy")
        need_dx, need_dtheta, need_dbias, _, _ = ctx.needs_input_grad
        dtheta = torch.zeros_like(theta) if need_dtheta else None
        dx = part.backward(x, dy, theta, need_dx, dtheta)
        _leave_source(layer, x, dy, part.labels)
        return dx, dtheta, dy.sum(0) if need_dbias else None, None, None


class _AllLabels(torch.autograd.Function):
    """The loss of each example over all labels, ``chunk`` at a time."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, targets: Tensor, layer: Any, index: LayerIndex, chunk: int
    ) -> Tensor:
        wide = torch.promote_types(theta.dtype, torch.float32)  # of all sums
        total, own = x.new_full(targets.shape, -torch.inf, dtype=wide), x.new_zeros(targets.shape, dtype=wide)
        parts = list(parts_of(index, layer.out_features, chunk))
        for number, part in enumerate(parts):
            logits = part.logits(x, theta, _bias_of(bias, part)).to(wide)
            total = torch.logaddexp(total, logits.logsumexp(1))
            examples, slots = _targets_in(targets, number * chunk, part)
            own[examples] = logits[examples, slots]
        ctx.save_for_backward(x, theta, bias, targets, total)
        ctx.made_of = (layer, parts, chunk)
        return total - own

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None, None]:
        (layer, parts, chunk), (x, theta, bias, targets, total) = ctx.made_of, ctx.saved_tensors
        refuse_second_derivative("label_cross_entropy")
        need_dx, need_dtheta, need_dbias = ctx.needs_input_grad[:3]
        upstream = grads[0][:, None]
        dx = torch.zeros_like(x) if need_dx else None
        dtheta = torch.zeros_like(theta) if need_dtheta else None
        dbias = torch.zeros_like(bias) if need_dbias else None
        for number, part in enumerate(parts):
            logits = part.logits(x, theta, _bias_of(bias, part)).to(total.dtype)
            change = logits.sub_(total[:, None]).exp_().mul_(upstream)  # the softmax, then less 1 at the target
            examples, slots = _targets_in(targets, number * chunk, part)
            change[examples, slots] -= grads[0][examples]
            dy = change.to(theta.dtype)
            found = part.backward(x, dy, theta, need_dx, dtheta)
            if dx is not None and found is not None:
                dx += found
            if dbias is not None:
                dbias[part.labels] = dy.sum(0)
            _leave_source(layer, x, dy, part.labels)
        return dx, dtheta, dbias, None, None, None, None


_part_logits: Callable[..., Tensor] = direct(_PartLogits)
_all_labels: Callable[..., Tensor] = direct(_AllLabels)


def _bias_of(bias: Tensor | None, part: LabelPart) -> Tensor | None:
    return None if bias is None else bias.index_select(0, part.labels)


def _targets_in(targets: Tensor, first: int, part: LabelPart) -> tuple[Tensor, Tensor]:
    """The examples whose label is in a part, and where it is in it."""
    examples = ((targets >= first) & (targets < first + part.labels.numel())).nonzero().view(-1)
    return examples, targets[examples] - first


def settle_hidden(hidden: Tensor, layer: Any, theta: Tensor) -> Tensor:
    """Hidden activations as rows that the kernels can read."""
    hidden = settle_input(hidden, theta, layer, "hidden")
    if not hidden.dim() or hidden.shape[-1] != layer.in_features:
        last = hidden.shape[-1] if hidden.dim() else "none"
        raise ValueError(f"the last dimension of hidden (={last}) must be in_features of the layer (={layer.in_features})")
    return hidden.reshape(-1, layer.in_features)


def require_sparse_linear(layer: Any) -> None:
    if not isinstance(layer, SparseLinear):
        raise TypeError(f"layer must be a SparseLinear, the last layer of the model, not {type(layer).__name__}")


def _settle_labels(labels: Tensor, hidden: Tensor, n_out: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Labels as one row of int64, and which of them count."""
    if labels.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8):
        raise ValueError(f"labels (={labels.dtype}) must be whole numbers, one for each example")
    if labels.shape != hidden.shape[:-1]:
        shapes = f"labels (={tuple(labels.shape)}) must have the shape of hidden (={tuple(hidden.shape)})"
        raise ValueError(f"{shapes} without its last dimension")
    if labels.device != hidden.device:
        raise ValueError(f"labels are on {labels.device}, hidden on {hidden.device}: move one of them with .to()")
    flat = labels.reshape(-1).to(torch.int64)
    counted = flat != ignore_index
    wrong = flat[counted & ((flat < 0) | (flat >= n_out))]
    if wrong.numel():
        raise ValueError(f"a label (={int(wrong[0])}) must be in [0, out_features (={n_out})), or ignore_index (={ignore_index})")
    return flat, counted


def label_cross_entropy(
    hidden: Tensor, layer: SparseLinear, labels: Tensor, *, samples: int | None = None, frequencies: Tensor | None = None,
    seed: int = 0, step: int = 0, chunk: int | None = None, ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:
    """``F.cross_entropy(layer(hidden), labels)`` without the logits of all labels at once, or over drawn labels only.

    Args:
        hidden: what goes into the last layer, [..., in_features].
        layer: the last layer, with one output for each label.
        labels: the right label of each example, [...].
        samples: how many labels are drawn beside those of the batch; None: all labels count.
        frequencies: one number > 0 for each label, in proportion to which they are drawn, with replacement; None: all
            alike, without replacement.
        seed, step: decide what is drawn; give the number of the step, or use ``LabelCrossEntropy``, which counts.
        chunk: labels at a time where all count; None: about a million logits, at least 1,024 labels.
        ignore_index, reduction: as in ``F.cross_entropy``.
    """
    require_sparse_linear(layer)
    check_draws(samples, frequencies, seed)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction (={reduction!r}) must be one of {', '.join(REDUCTIONS)}")
    settings = (hidden, layer, labels, samples, frequencies, seed, step, chunk, ignore_index)
    if recorded(hidden, layer.fast_wiring):
        if not in_graph(hidden):
            what = "label_cross_entropy cannot be traced or transformed"
            raise RuntimeError(f"{what}: there, use F.cross_entropy(layer(hidden), labels)")
        losses, counted = cast(tuple[Tensor, Tensor], run_outside(_losses, *settings))
    else:
        losses, counted = _losses(*settings)
    if reduction == "none":
        return losses.view(labels.shape)
    return losses.sum() if reduction == "sum" else losses.sum() / counted


def _losses(
    hidden: Tensor, layer: Any, labels: Tensor, samples: int | None, frequencies: Tensor | None, seed: int, step: int,
    chunk: int | None, ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """The loss of each example, 0 where it is ignored, and how many are not."""
    theta, index = layer_arrays(layer)
    flat, counted = _settle_labels(labels, hidden, layer.out_features, ignore_index)
    x, bias = settle_hidden(hidden, layer, theta), settle_bias(layer.bias, theta, layer.out_features, layer)
    every = bool(counted.all())
    if not every:
        x, flat = x[counted], flat[counted]
    if samples is None:
        chunk = labels_at_a_time(len(flat), layer.out_features, chunk)

    def losses(theta: Tensor) -> Tensor:
        if samples is None:
            return _all_labels(x, theta, bias, flat, layer, index, chunk)
        chosen, correction = draw_labels(flat.unique(), layer.out_features, samples, frequencies, seed, step)
        part = part_of(index, chosen, layer.out_features)
        logits = _part_logits(x, theta, _bias_of(bias, part), layer, part)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if correction is not None:
            logits = logits + correction.to(logits.dtype)
        return F.cross_entropy(logits, torch.searchsorted(chosen, flat), reduction="none")

    try:
        found = losses(theta)
    except DormantThetaError:
        found = losses(layer.fast_wiring.dormant_as_zero(theta))
    if not every:
        found = found.new_zeros(counted.shape).masked_scatter(counted, found)
    return found, counted.sum()


class LabelCrossEntropy(nn.Module):
    """``label_cross_entropy`` that draws other labels in every call of a training, and counts all labels in evaluation.

    Args:
        samples: how many labels are drawn beside those of the batch; None: all labels count in training too.
        frequencies: one number > 0 for each label, in proportion to which they are drawn; None: all alike.
        seed: decides what is drawn, with the number of the call.
        chunk, ignore_index, reduction: as in ``label_cross_entropy``.
    """

    calls: Tensor  # in training
    frequencies: Tensor | None

    def __init__(
        self, samples: int | None = 1024, *, frequencies: Tensor | None = None, seed: int = 0, chunk: int | None = None,
        ignore_index: int = -100, reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_draws(samples, frequencies, seed)
        self.samples, self.seed, self.chunk = samples, seed, chunk
        self.ignore_index, self.reduction = ignore_index, reduction
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64, device="cpu"))

    def forward(self, hidden: Tensor, layer: SparseLinear, labels: Tensor) -> Tensor:
        """The loss of the examples ``hidden``, [..., in_features], whose right labels are ``labels``, [...]."""
        drawn = self.training and self.samples is not None
        step = int(self.calls) if drawn else 0
        if drawn:
            self.calls += 1
        return label_cross_entropy(
            hidden, layer, labels, samples=self.samples if drawn else None, frequencies=self.frequencies if drawn else None,
            seed=self.seed, step=step, chunk=self.chunk, ignore_index=self.ignore_index, reduction=self.reduction,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"samples={self.samples}, seed={self.seed}, reduction={self.reduction!r}"
