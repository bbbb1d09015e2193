"""First wirings that are correlated with the data: the inputs of a unit are inputs that vary together."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear
from wirebound.ops import philox
from wirebound.ops.layout import rows_of
from wirebound.ops.philox import Stream, stream_of

BLOCK = 1 << 20  # correlations that are there at a time, unless one input has more
_LEAST = 1e-30  # of a correlation, so that inputs without any can still be drawn, last


@torch.no_grad()
def wire_by_correlation_(model: nn.Module, x: Tensor, *, power: float | Sequence[float] = 1.0) -> None:
    """Draw the positions of the model's first linear layer again, so that the inputs of each unit vary together.

        for each unit of the layer, which keeps its number k of connections:
            draw an input i uniformly among those that vary in x
            connect i, and k − 1 others j, drawn without replacement in proportion to |correlation of i and j|^power

    Exactly as many connections as before, with the same θ; their signs are the constant ones of the new positions.
    Everything follows from the wiring's seed and x. To be called before a method is made. Correlations are computed for
    a block of units at a time: O(K + x) memory, never all pairs of inputs.

    Args:
        model: a sparsified model; its first ``SparseLinear`` layers are wired, in the order of ``model.modules()``.
        x: examples for the model; a few thousand are enough.
        power: 0 draws uniformly, large values take the most correlated inputs. Several numbers wire as many layers, one
            after the other, each by what it sees when the model as it is by then is run on x in eval mode.
    """
    powers = [float(p) for p in power] if isinstance(power, Sequence) else [float(power)]
    for value in powers:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"power (={value:g}) must be a finite number >= 0")
    layers = [module for module in model.modules() if isinstance(module, SparseLinear)]
    if not layers:
        raise ValueError(f"model (={type(model).__name__}) has no SparseLinear: call wb.sparsify(model, ...) first")
    if len(powers) > len(layers):
        raise ValueError(f"power has {len(powers)} numbers, but the model has {len(layers)} sparse linear layers")
    for number, (layer, value) in enumerate(zip(layers, powers, strict=False)):
        seen = x.flatten(1) if number == 0 else _what_it_sees(model, layer, x)
        if layer.in_features != seen.shape[1]:
            raise ValueError(f"x has {seen.shape[1]} features, but the first sparse linear layer takes {layer.in_features}")
        _wire(layer, seen, value)


def _wire(layer: SparseLinear, seen: Tensor, power: float) -> None:
    wiring, layer_id = layer.wiring, layer.layer_id
    if wiring.claim is not None:
        by = getattr(wiring.claim, "method", "a method")
        raise RuntimeError(f"the wiring is trained by {by} already: call wire_by_correlation_ before the method is made")
    if wiring.fan_caps is not None:
        raise ValueError("neurons have caps (constraints): a wiring by correlation does not keep them")
    start, end = wiring.bounds[layer_id : layer_id + 2]
    theta = wiring.theta.detach()[start:end].clone()
    fan_in = torch.bincount(rows_of(wiring.packed_rows[start:end]), minlength=layer.out_features)
    positions = _draw(seen.to(theta.device, theta.dtype), fan_in, wiring.seed, wiring.index, layer_id, power)
    dead = torch.arange(start, end, device=theta.device)
    wiring.replace_(dead, positions + wiring.geometry.position_start[layer_id], [], theta if wiring.sign_bound else theta.abs())


def _what_it_sees(model: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """The inputs of a layer, [examples, features]."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    training = model.training
    try:
        model.eval()(x)
    finally:
        handle.remove()
        model.train(training)
    return torch.cat([part.flatten(0, -2) for part in seen])


def _draw(x: Tensor, fan_in: Tensor, seed: int, index: int, layer_id: int, power: float) -> Tensor:
    """Sorted positions in the layer of ``fan_in[r]`` inputs for each unit r."""
    (rows, n_in), n_out = x.shape, fan_in.numel()
    z = x - x.mean(0)
    spread = z.square().mean(0).sqrt()
    varies = torch.nonzero(spread > 1e-6 * spread.max()).view(-1)
    if not varies.numel():
        varies = torch.arange(n_in, device=x.device)
    z = torch.where(spread > 0, z / spread.clamp(min=torch.finfo(z.dtype).tiny), 0) / math.sqrt(rows)
    stream = stream_of(Stream.FIRST_INPUTS, index, layer=layer_id)
    first = varies[philox.integers_below(varies.numel(), seed, stream, 0, n_out, x.device)]
    found, width = [], max(1, BLOCK // n_in)
    for at in range(0, n_out, width):
        own, fans = first[at : at + width], fan_in[at : at + width]
        correlation = (z[:, own].t() @ z).abs().clamp(_LEAST, 1)
        u = philox.gumbels(seed, stream, 1 + at // width, correlation.numel(), x.device).view_as(correlation)
        keys = correlation.double().log() * power + u  # the largest k of these are drawn without replacement
        keys.scatter_(1, own[:, None], math.inf)
        columns = keys.topk(int(fans.max()), dim=1).indices
        wanted = torch.arange(columns.shape[1], device=x.device) < fans[:, None]
        units = torch.arange(at, at + own.numel(), device=x.device)[:, None].expand_as(columns)
        found.append((columns * n_out + units)[wanted])
    return torch.cat(found).sort().values
