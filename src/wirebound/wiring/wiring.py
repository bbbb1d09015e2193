"""``Wiring``: the K active connections of one matrix or of many, in arrays that are exactly K long.

    theta          K parameters θ >= 0, one ``nn.Parameter``; the weight is sign · θ
    packed_rows    K int32, row and sign of each connection (``ops/layout.py``)
    colptr         where each input column starts, over the columns of all layers

More than K connections cannot exist, because the arrays are K long. The Parameter never changes identity or size.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch._C import _get_dispatch_mode, _TorchDispatchModeKey

from wirebound import ops
from wirebound.ops import philox
from wirebound.ops.device.fixed import mask_of
from wirebound.ops.device.steps import exchange
from wirebound.ops.faults import WiringError
from wirebound.ops.layout import Geometry, rows_of
from wirebound.wiring import copies, mapping
from wirebound.wiring.budget import whole
from wirebound.wiring.connections import Connections
from wirebound.wiring.constraints import Constraints, settle_caps, settle_signs
from wirebound.wiring.draw import build_index, draw_newborns, draw_positions, draw_theta, fault_of_newborns, per_layer
from wirebound.wiring.layers import LayerRates, LayerShape
from wirebound.wiring.occurring import SeenColumns
from wirebound.wiring.trust import version_of, wiring_fault


class GradientSource(Protocol):
    """What a backward pass leaves behind of one layer: the gradient of any weight follows from it, active or not."""

    def block(self, first: int, last: int) -> Tensor:
        """∂E/∂w of the columns [first, last) of the layer's matrix, all rows: [n_out, last - first]."""

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """∂E/∂w at distinct positions of the matrix, sorted by column and then by row, without forming a block."""


class Wiring(Connections):
    """One budget of connections over ``layers``.

    Args:
        layers: the matrices that share the budget.
        counts: connections of each layer at the start; their sum is the budget K.
        seed: decides positions, weights, signs and every later draw.
        index: number of this wiring in its model, so that two of the same seed draw different numbers.
        init: scale of the first weights, ``"dense-fan-in"`` or ``"sparse-fan-in"``.
        gain: factor on that scale.
        constraints: caps on the fan-in and fan-out of neurons, and signs that belong to them.
    """

    # None, or which of the K places hold a connection: for methods that may leave places empty, with θ = 0.
    alive: Tensor | None
    fan_caps: Tensor | None  # int64[2, layers]: most connections of an output and of an input neuron
    column_signs: Tensor | None  # int8, for each input neuron of all layers: 1, -1, or 0 where it is free
    identity: Tensor  # seed, index: the constant signs follow from them, so they are part of the state
    constrained: bool  # it has caps or signs of neurons, which fused steps do not know of
    initial_counts: Tensor
    # None, or a dict by layer in which each backward pass leaves its source, for methods that grow by the gradient.
    watch: dict[int, list[GradientSource]] | None
    # None, or by layer the columns that sparse inputs had, for methods that give connections to those only.
    seen: dict[int, SeenColumns] | None = None
    claim: object | None = None  # the mark of the method that steps it; a later method puts its own

    def __init__(
        self, layers: Sequence[LayerShape], counts: Sequence[int], *, seed: int = 0, index: int = 0,
        init: str = "dense-fan-in", gain: float = 1.0, device: torch.device | str | None = None,
        dtype: torch.dtype | None = None, constraints: Constraints | None = None,
    ) -> None:
        super().__init__()
        device = torch.device("cpu" if device is None else device)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self._describe(layers, counts, seed, index, constraints, device)
        name = (self.geometry, counts, self.seed, index)
        positions = draw_positions(*name, device, self.fan_caps)
        self._fill(positions, self.negative_signs(positions), draw_theta(*name, init, gain, device, dtype), counts)

    @classmethod
    def from_connections(
        cls, layers: Sequence[LayerShape], positions: Tensor, weights: Tensor, *, seed: int = 0, index: int = 0,
        constraints: Constraints | None = None,
    ) -> "Wiring":
        """A wiring of given connections: sorted ``positions`` through all layers, and a weight for each.

        The sign of such a connection is that of its weight while it lives; born again, it has its constant sign.
        """
        wiring = cls.__new__(cls)
        nn.Module.__init__(wiring)
        counts = per_layer(_geometry(layers), positions)
        wiring._describe(layers, counts, seed, index, constraints, positions.device)
        negative = torch.where(weights == 0, wiring.negative_signs(positions), weights < 0)
        wiring._fill(positions, negative, weights.detach().abs(), counts)
        if constraints:
            wiring.check()
        return wiring

    def _describe(
        self, layers: Sequence[LayerShape], counts: Sequence[int], seed: int, index: int,
        constraints: Constraints | None, device: torch.device,
    ) -> None:
        seed = whole("seed", seed)
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"seed (={seed}) must be in [0, 2^63)")
        if not 0 <= index < philox.MAX_WIRINGS:
            raise ValueError(f"wiring index (={index}) must be in [0, {philox.MAX_WIRINGS})")
        if len(layers) >= philox.MAX_WIRINGS:
            raise ValueError(f"a wiring must span fewer than {philox.MAX_WIRINGS} layers, not {len(layers)}")
        if _get_dispatch_mode(_TorchDispatchModeKey.FAKE) is not None:
            raise RuntimeError("a wiring cannot be made under FakeTensorMode: build and sparsify the model outside of it")
        self.forget()
        self.layers, self.geometry = tuple(layers), _geometry(layers)
        fan_caps, signs = settle_caps(constraints, self.layers, counts), settle_signs(constraints, self.layers, seed, index)
        self.register_buffer("identity", torch.tensor([seed, index], dtype=torch.int64, device="cpu"))
        self.register_buffer("fan_caps", None if fan_caps is None else fan_caps.to(device))
        self.register_buffer("column_signs", None if signs is None else signs.to(device))
        self.constrained = fan_caps is not None or signs is not None

    def _fill(self, positions: Tensor, negative: Tensor, theta: Tensor, counts: Sequence[int]) -> None:
        packed_rows, colptr = build_index(self.geometry, positions, negative)
        self.register_parameter("theta", nn.Parameter(theta))
        self.register_buffer("packed_rows", packed_rows)
        self.register_buffer("colptr", colptr)
        self.register_buffer("initial_counts", torch.tensor(counts, dtype=torch.int64, device="cpu"))
        self.register_buffer("alive", None)
        self.sign_bound = True
        self.watch = None
        copies.become_copy(self, None)

    @property
    def active(self) -> int:
        """Active connections now, counted."""
        self.examine_index()
        if self.alive is None and not self.sign_bound:
            return self.budget
        return int((self.theta.detach() >= 0 if self.alive is None else self.alive).sum())

    @property
    def layer_active(self) -> list[int]:
        """Active connections of each layer, counted."""
        active = self.alive
        if active is None:
            if not self.sign_bound:
                return self.layer_places
            active = self.theta.detach() >= 0
        return [int(active[a:b].sum()) for a, b in itertools.pairwise(self.bounds)]

    def active_counts(self) -> list[int]:
        """``layer_active``; on a device as scalars that stay there, -1 where θ or its gradient is not finite."""
        if not self.is_whole:
            return self.layer_active
        theta, grad = self.theta.detach(), self.theta.grad
        active = self.alive if self.alive is not None else theta >= 0 if self.sign_bound else torch.ones_like(theta, dtype=torch.bool)
        fine = torch.isfinite(theta).all() & (True if grad is None else torch.isfinite(grad).all())
        edges = self.colptr[torch.tensor(self.geometry.column_start, device=theta.device)]
        counts = torch.nn.functional.pad(active.cumsum(0), (1, 0))[edges].diff()
        return list(torch.where(fine, counts, -1).unbind())  # type: ignore[arg-type]

    @property
    def connectivity(self) -> float:
        return self.budget / self.possible

    @property
    def nbytes(self) -> int:
        """Bytes of all that the wiring keeps: parameters, index and column pointers (gradients not included)."""
        arrays = (self.theta, self.packed_rows, self.colptr, *(() if self.alive is None else (self.alive,)))
        return sum(t.numel() * t.element_size() for t in arrays)

    def layer_dense(self, layer_id: int) -> Tensor:
        """The layer as a dense matrix [n_out, n_in]: for export and for tests."""
        if self.kinship is not None:
            copies.look(self)
        index, shape = self.layer_index(layer_id), self.layers[layer_id]
        theta = self.theta.detach()[index.start : index.end]
        if self.sign_bound:
            theta = theta.clamp(min=0)  # what is below 0 is dormant
        return mapping.scatter(theta, index.layer_packed_rows(), index.layer_colptr(), shape.n_out, shape.n_in)

    def check(self) -> None:
        """Raise ``WiringError`` unless this is exactly K distinct, sorted, valid, finite connections."""
        if self.kinship is not None:
            copies.look(self)
        arrays, limits = (self.theta.detach(), self.packed_rows, self.colptr), (self.alive, self.fan_caps, self.column_signs)
        fault = wiring_fault(self.geometry, *arrays, self.sign_bound, *limits)
        if fault is None:
            ends = self.colptr[torch.tensor(self.geometry.column_start, device=self.colptr.device)].tolist()
            if self.bounds != ends:
                fault = f"the layers must start where the column pointers say ({ends}), not at {self.bounds}"
        if fault is not None:
            raise WiringError(f"{self._names()}: {fault}")

    def extra_repr(self) -> str:
        return f"budget={self.budget}, possible={self.possible}, layers={len(self.layers)}"

    @property
    def budget(self) -> int:
        """K, the number of connections that this wiring may have, and has unless it keeps places empty."""
        return self.theta.numel()

    @property
    def possible(self) -> int:
        return self.geometry.possible

    @property
    def origin(self) -> list[int]:
        """Seed and index, as the buffer has them now: a state dict or another rank may have written it."""
        identity: Tensor = self._buffers["identity"]  # type: ignore[assignment]  # quicker than the attribute
        known = self._origin
        if known is None or known[0] is not identity or known[1] != version_of(identity):
            known = self._origin = (identity, version_of(identity), identity.tolist())
        return known[2]

    @property
    def seed(self) -> int:
        return self.origin[0]

    @property
    def index(self) -> int:
        """Number of this wiring in its model."""
        return self.origin[1]

    def positions(self) -> Tensor:
        """The sorted position of each connection, int64, counted input-major through all layers."""
        return self.geometry.positions(self.packed_rows, self.colptr)

    @property
    def layer_rates(self) -> LayerRates:
        return LayerRates.plain(len(self.layers)) if self.rates is None else self.rates

    def set_layer_rates(self, rates: LayerRates) -> None:
        self.rates = None if rates.are_plain else rates

    @property
    def has_frozen(self) -> bool:
        return self.rates is not None and any(self.rates.frozen)

    def in_frozen(self, device: torch.device | None = None) -> Tensor:
        frozen = torch.tensor(self.layer_rates.frozen, device="cpu")
        return torch.repeat_interleave(frozen, torch.tensor(self.layer_places)).to(device or self.theta.device)

    def negative_signs(self, positions: Tensor) -> Tensor:
        """Whether the constant sign of each position is -1: that of its input neuron, or else a hash of the position."""
        negative = ops.backend_on(positions.device).negative_signs(positions, self.seed, self.index)
        if self.column_signs is None:
            return negative
        own = self.column_signs[self.geometry.locate(positions)[0]]
        return torch.where(own == 0, negative, own < 0)

    def rewire_(
        self, dead: Tensor, carried: Sequence[tuple[Tensor, float]], step: int, shares: Sequence[float] | None,
        open_columns: ops.OpenColumns | None = None,
    ) -> tuple[list[int], list[int]]:  # fmt: skip
        """Replace the ``dead`` (sorted indices) by drawn newborns with θ = 0, in ``open_columns`` if they are given; other
        arguments and result as in ``replace_``."""
        if self.constrained or self.has_frozen or open_columns is not None:
            positions = self.positions()
            survivors = positions[self._survive(dead)]
            newborns = draw_newborns(self, survivors, positions[dead], step, shares=shares, open_columns=open_columns)
            return self.replace_(dead, newborns, carried)
        theta = self.theta.detach()
        before = self.changing()
        return self.changed(before, *ops.backend_of(theta).rewire_(self, [(theta, 0), *carried], dead, step, shares))

    def replace_(
        self, dead: Tensor, newborns: Tensor, carried: Sequence[tuple[Tensor, float | Tensor]],
        strength: float | Tensor = 0.0, *, survivors: Tensor | None = None,
    ) -> tuple[list[int], list[int]]:
        """Replace the ``dead`` (sorted indices) by ``newborns`` (sorted positions, dormant or dying); (born, died) of layers.

        A newborn's weight is ``strength``, a number >= 0 or one for each, with the constant sign of its position.
        ``carried`` are the arrays that move along, each with the value, or the values, of newborns. ``survivors``: the
        sorted positions of those that stay, from whoever has drawn the newborns beside them; the rest then checks nothing.
        """
        if not self.is_whole and survivors is None:
            survivors = self.positions()[self._survive(dead)]
            if fault := fault_of_newborns(self, survivors, newborns, dead.numel()):
                raise ValueError(fault)
        theta, negative = self.theta.detach(), self.negative_signs(newborns)
        fill: float | Tensor = strength
        if not self.sign_bound:
            fill = torch.where(negative, -1.0, 1.0).to(theta.dtype) * strength
            negative = torch.zeros_like(negative)
        before = self.changing()
        if self.is_whole:
            gone = mask_of(dead, self.budget)
            counts = exchange(self, [(theta, fill), *carried], gone, newborns, negative, newborns.numel())
            return self.changed(before, *counts)
        assert survivors is not None
        return self.changed(before, *ops.replace_(self, [(theta, fill), *carried], dead, newborns, negative, survivors))

    def _survive(self, dead: Tensor) -> Tensor:
        survive = torch.ones(self.budget, dtype=torch.bool, device=dead.device)
        survive[dead] = False
        return survive

    def keep_empty_places_(self) -> Tensor:
        """From now on note which places hold a connection, at first all; the mask, for a method to change."""
        self.alive = torch.ones(self.budget, dtype=torch.bool, device=self.theta.device)
        return self.alive

    @torch.no_grad()
    def release_signs_(self) -> None:
        """Let weights cross zero: θ becomes the weight itself; signs that belong to neurons stay bound."""
        self.alive = None  # every place is a connection again, an empty one a connection of weight 0
        if self.sign_bound and self.column_signs is None:
            self.theta.copy_(mapping.weights(self.theta, self.packed_rows))
            self.packed_rows.copy_(rows_of(self.packed_rows))
            self.sign_bound = False

    @torch.no_grad()
    def bind_signs_(self) -> None:
        """Back to θ >= 0 and constant signs, those that the weights have now."""
        self.alive = None
        if not self.sign_bound:
            self.packed_rows.copy_(torch.where(self.theta < 0, self.packed_rows | -(1 << 31), self.packed_rows))
            self.theta.abs_()
            self.sign_bound = True


def _geometry(layers: Sequence[LayerShape]) -> Geometry:
    return Geometry(tuple(s.n_out for s in layers), tuple(s.n_in for s in layers))
