"""What hardware asks of a wiring, at every step: caps on fan-in and fan-out, and signs that belong to neurons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import Geometry, rows_of
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring.budget import whole
from wirebound.wiring.layers import LayerShape

Cap: TypeAlias = int | Mapping[str, int] | None
Signs: TypeAlias = float | Sequence[int]


@dataclass(frozen=True)
class Constraints:
    """Limits of each neuron; each is one value for all layers, or a mapping from layer name that leaves others free.

    Args:
        max_fan_in: connections that an output neuron (row) may have.
        max_fan_out: connections that an input neuron (column) may have.
        dale: the share of input neurons whose connections are all positive, those of the others being all negative
            (which ones is drawn); or a sign, 1 or -1, for each input neuron, where 0 leaves it free.
    """

    max_fan_in: Cap = None
    max_fan_out: Cap = None
    dale: Signs | Mapping[str, Signs] | None = None

    def __bool__(self) -> bool:
        return self.capped or self.dale is not None

    @property
    def capped(self) -> bool:
        return self.max_fan_in is not None or self.max_fan_out is not None

    def require_names(self, layers: Sequence[LayerShape]) -> None:
        known = {layer.name for layer in layers}
        for setting, value in vars(self).items():
            unknown = sorted(set(value) - known) if isinstance(value, Mapping) else []
            if unknown:
                raise ValueError(f"{setting} names layer {unknown[0]!r}, which must be one of {', '.join(sorted(known))}")

    def for_layers(self, layers: Sequence[LayerShape]) -> "Constraints":
        """The same for a wiring over some of the layers: mappings without the names of others."""
        names = {layer.name for layer in layers}

        def part(value: Any) -> Any:
            return {k: v for k, v in value.items() if k in names} or None if isinstance(value, Mapping) else value

        return Constraints(part(self.max_fan_in), part(self.max_fan_out), part(self.dale))

    def caps(self, layer: LayerShape) -> tuple[int, int]:
        """(fan-in, fan-out) that neurons of a layer may have; what the matrix has room for, where nothing is asked."""
        found = []
        for name, size in (("max_fan_in", layer.n_in), ("max_fan_out", layer.n_out)):
            given: Cap = getattr(self, name)
            value = given.get(layer.name) if isinstance(given, Mapping) else given
            cap = None if value is None else whole(f"{name} of layer {layer.name!r}", value)
            if cap is not None and cap < 1:
                raise ValueError(f"{name} of layer {layer.name!r} (={cap}) must be a whole number >= 1")
            found.append(size if cap is None else min(cap, size))
        return found[0], found[1]

    def capacity(self, layer: LayerShape) -> int:
        """The most connections that a layer can have within the caps; a regular wiring reaches it."""
        fan_in, fan_out = self.caps(layer)
        return min(layer.n_out * fan_in, layer.n_in * fan_out)


def settle_caps(constraints: Constraints | None, layers: Sequence[LayerShape], counts: Sequence[int]) -> Tensor | None:
    """Caps as a wiring keeps them, int64[2, layers]: fan-in and fan-out; None if there are none."""
    if constraints is None or not constraints.capped:
        return None
    constraints.require_names(layers)
    found = [constraints.caps(layer) for layer in layers]
    for layer, count, (fan_in, fan_out) in zip(layers, counts, found, strict=True):
        kinds = (("max_fan_in", fan_in, layer.n_out, "outputs"), ("max_fan_out", fan_out, layer.n_in, "inputs"))
        for name, cap, neurons, kind in kinds:
            if count > neurons * cap:
                room = f"{neurons * cap} connections at {neurons} {kind}"
                raise ValueError(f"{name} (={cap}) of layer {layer.name!r} allows {room}, fewer than its {count}")
    return torch.tensor(found, dtype=torch.int64, device="cpu").t().contiguous()


def settle_signs(constraints: Constraints | None, layers: Sequence[LayerShape], seed: int, index: int) -> Tensor | None:
    """The sign of each input neuron of all layers, int8: 1, -1, or 0 where it is free; None if all are."""
    if constraints is None or constraints.dale is None:
        return None
    constraints.require_names(layers)
    parts = []
    for layer_id, layer in enumerate(layers):
        dale = constraints.dale
        value = dale.get(layer.name, [0] * layer.n_in) if isinstance(dale, Mapping) else dale
        parts.append(_layer_signs(value, layer, seed, stream_of(Stream.COLUMN_SIGN, index, layer=layer_id)))
    return torch.cat(parts)


def _layer_signs(value: Signs, layer: LayerShape, seed: int, stream: int) -> Tensor:
    if isinstance(value, Sequence):
        if len(value) != layer.n_in or any(sign not in (-1, 0, 1) for sign in value):
            rule = f"must be a share, or 1, -1 or 0 for each of its {layer.n_in} inputs"
            raise ValueError(f"dale of layer {layer.name!r} {rule}")
        return torch.tensor(list(value), dtype=torch.int8, device="cpu")
    if not 0 <= value <= 1:
        raise ValueError(f"dale of layer {layer.name!r} (={value}) must be a share in [0, 1]")
    signs = torch.full((layer.n_in,), -1, dtype=torch.int8, device="cpu")
    sample = ops.backend_on(signs.device).sample_sorted
    signs[sample(layer.n_in, round(value * layer.n_in), seed, stream, 0, signs.device)] = 1
    return signs


def constraint_fault(
    geometry: Geometry, packed_rows: Tensor, colptr: Tensor, sign_bound: bool, fan_caps: Tensor | None,
    column_signs: Tensor | None,
) -> str | None:
    if fan_caps is not None:
        sizes = torch.tensor([geometry.n_in, geometry.n_out], device=fan_caps.device)
        if bool(((fan_caps < 0) | (fan_caps > sizes)).any()):
            return "fan_caps must be numbers that the layers have room for"
        outward = colptr[1:] - colptr[:-1]
        starts = torch.tensor(geometry.row_start[:-1], device=packed_rows.device)
        first = starts.repeat_interleave(torch.tensor(geometry.n_in, device=packed_rows.device))
        rows = rows_of(packed_rows) + torch.repeat_interleave(first, outward, output_size=packed_rows.numel())
        inward = torch.bincount(rows, minlength=geometry.row_start[-1])
        for name, counts, caps, kind in (
            ("max_fan_in", inward, fan_caps[0].repeat_interleave(sizes[1]), "output"),
            ("max_fan_out", outward, fan_caps[1].repeat_interleave(sizes[0]), "input"),
        ):
            if (over := torch.nonzero(counts > caps)).numel():
                worst = int(over[0])
                return f"{name} (={int(caps[worst])}) must hold, but {kind} neuron {worst} has {int(counts[worst])}"
    if column_signs is not None:
        if bool(((column_signs < -1) | (column_signs > 1)).any()):
            return "column_signs must be 1, -1 or 0"
        if not sign_bound:
            return "signs must be bound where they belong to neurons"
        own = torch.repeat_interleave(column_signs, colptr[1:] - colptr[:-1], output_size=packed_rows.numel())
        if wrong := int(((own != 0) & ((own < 0) != (packed_rows < 0))).sum()):
            return f"a connection must have the sign of its input neuron, {wrong} have not"
    return None
