"""``Rewirable``: connections that can be replaced by others, as methods do, with constant signs that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.layout import rows_of
from wirebound.wiring import mapping
from wirebound.wiring.connections import Connections
from wirebound.wiring.draw import draw_newborns, fault_of_newborns
from wirebound.wiring.layers import LayerRates
from wirebound.wiring.trust import version_of


class Rewirable(Connections):
    """What methods ask of a wiring, and what they do to it."""

    # None, or which of the K places hold a connection: for methods that may leave places empty. An empty place has
    # θ = 0, so layers need not know of it.
    alive: Tensor | None
    fan_caps: Tensor | None  # int64[2, layers]: most connections of an output and of an input neuron
    column_signs: Tensor | None  # int8, for each input neuron of all layers: 1, -1, or 0 where it is free
    identity: Tensor  # seed, index: the constant signs follow from them, so they are part of the state
    constrained: bool  # it has caps or signs of neurons, which fused steps do not know of

    @property
    def budget(self) -> int:
        """K, the number of connections that this wiring may have, and has unless it keeps places empty."""
        return self.theta.numel()

    @property
    def possible(self) -> int:
        return self.geometry.possible

    @property
    def seed(self) -> int:
        return self._identity()[0]

    @property
    def index(self) -> int:
        """Number of this wiring in its model."""
        return self._identity()[1]

    def _identity(self) -> list[int]:
        """Seed and index, as the buffer has them now: a state dict or another rank may have written it."""
        identity: Tensor = self._buffers["identity"]  # type: ignore[assignment]  # quicker than the attribute
        known = self._origin
        if known is None or known[0] is not identity or known[1] != version_of(identity):
            known = self._origin = (identity, version_of(identity), identity.tolist())
        return known[2]

    def positions(self) -> Tensor:
        """The sorted position of each connection, int64, counted input-major through all layers."""
        return self.geometry.positions(self.packed_rows, self.colptr)

    # What layers have of their own

    @property
    def layer_rates(self) -> LayerRates:
        """Factors on the optimiser's rates and who is frozen, for each layer."""
        return LayerRates.plain(len(self.layers)) if self.rates is None else self.rates

    def set_layer_rates(self, rates: LayerRates) -> None:
        self.rates = None if rates.are_plain else rates

    @property
    def has_frozen(self) -> bool:
        """Whether some layer is frozen."""
        return self.rates is not None and any(self.rates.frozen)

    def in_frozen(self, device: torch.device | None = None) -> Tensor:
        """Which of the K places belong to frozen layers."""
        frozen = torch.tensor(self.layer_rates.frozen, device="cpu")
        return torch.repeat_interleave(frozen, torch.tensor(self.layer_places)).to(device or self.theta.device)

    # What methods do

    def negative_signs(self, positions: Tensor) -> Tensor:
        """Whether the constant sign of each position is -1: that of its input neuron, or else a hash of the position."""
        negative = ops.backend_on(positions.device).negative_signs(positions, self.seed, self.index)
        if self.column_signs is None:
            return negative
        own = self.column_signs[self.geometry.locate(positions)[0]]
        return torch.where(own == 0, negative, own < 0)

    def rewire_(
        self, dead: Tensor, carried: Sequence[tuple[Tensor, float]], step: int, shares: Sequence[float] | None
    ) -> tuple[list[int], list[int]]:
        """Replace the ``dead`` (sorted indices) by newborns with θ = 0; (born, died) of each layer.

        ``carried`` are the arrays that move along, each with the value of a newborn.
        """
        if self.constrained or self.has_frozen:
            positions = self.positions()
            newborns = draw_newborns(self, positions[self._survive(dead)], positions[dead], step, shares=shares)
            return self.replace_(dead, newborns, carried)
        theta = self.theta.detach()
        before = self.changing()
        return self.changed(before, *ops.backend_of(theta).rewire_(self, [(theta, 0), *carried], dead, step, shares))

    def replace_(
        self,
        dead: Tensor,
        newborns: Tensor,
        carried: Sequence[tuple[Tensor, float | Tensor]],
        strength: float | Tensor = 0.0,
    ) -> tuple[list[int], list[int]]:
        """Replace the ``dead`` (sorted indices) by as many ``newborns`` (sorted positions that are not active, or
        die); (born, died) of each layer.

        A newborn's weight is ``strength``, a number >= 0 or one for each, with the constant sign of its position.
        ``carried`` are the arrays that move along, each with the value, or the values, of newborns.
        """
        fault = fault_of_newborns(self, self.positions()[self._survive(dead)], newborns, dead.numel())
        if fault is not None:
            raise ValueError(fault)
        theta, negative = self.theta.detach(), self.negative_signs(newborns)
        fill: float | Tensor = strength
        if not self.sign_bound:
            fill = torch.where(negative, -1.0, 1.0).to(theta.dtype) * strength
            negative = torch.zeros_like(negative)
        moving = [(theta, fill), *carried]
        before = self.changing()
        return self.changed(before, *ops.replace_(self, moving, dead, newborns, negative))

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
        """Let weights cross zero: θ becomes the weight itself, as methods without constant signs need it.

        Signs that belong to neurons stay bound all the same: such a method then has to stop θ at 0.
        """
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
