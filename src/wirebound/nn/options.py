"""The arguments that all sparse layers have beside those of their torch twins, and the wiring that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wirebound.wiring import Allocation, Constraints, LayerShape, Wiring, allocate

Slot = tuple[Wiring, int]  # a wiring and the number of one of its layers


@dataclass(frozen=True)
class WiringOptions:
    """How a sparse layer gets its connections: keyword arguments of every sparse layer.

    Args:
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        allocation: how the budget is shared out among several matrices at the start, as in ``sparsify``.
        seed: decides positions, signs and first weights.
        init: ``"dense-fan-in"`` (the paper: N(0,1)/√fan-in) or ``"sparse-fan-in"``; biases start at 0.
        constraints: caps on the fan-in and fan-out of neurons, and signs that belong to them.
        device, dtype: of θ and biases.
        wiring: use layers of this wiring, from ``layer_id`` on, instead of an own one.
        layer_id: number of the first of them.
        owner: whether this layer is the one that holds the wiring as a submodule.
    """

    connectivity: float | None = None
    budget: int | None = None
    allocation: Allocation = "erdos-renyi"
    seed: int = 0
    init: str = "dense-fan-in"
    constraints: Constraints | None = None
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None
    wiring: Wiring | Sequence[Slot] | None = None
    layer_id: int = 0
    owner: bool = True

    def slots(self, shapes: Sequence[LayerShape]) -> list[tuple[Wiring, int, bool]]:
        """Wiring, layer_id and owner for each matrix of a layer."""
        wiring = self.wiring
        if wiring is None:
            if self.layer_id:
                raise ValueError(f"layer_id (={self.layer_id}) must be 0 where no wiring is given")
            names, sizes = [shape.name for shape in shapes], [(shape.n_out, shape.n_in) for shape in shapes]
            counts = allocate(names, sizes, self.allocation, self.connectivity, self.budget)
            first = {"seed": self.seed, "init": self.init, "constraints": self.constraints}
            wiring = Wiring(shapes, counts, device=self.device, dtype=self.dtype, **first)  # type: ignore[arg-type]
        if isinstance(wiring, Wiring):
            slots = [(wiring, self.layer_id + i, self.owner and i == 0) for i in range(len(shapes))]
        else:
            slots = [(each, number, number == 0) for each, number in wiring]
        for shape, (each, number, _) in zip(shapes, slots, strict=True):
            given = each.layers[number] if number < len(each.layers) else None
            if given is None or (given.n_out, given.n_in) != (shape.n_out, shape.n_in):
                found = "none" if given is None else f"{given.n_out} × {given.n_in}"
                raise ValueError(
                    f"layer {number} of the wiring (={found}) must be the matrix {shape.name!r} (={shape.n_out} × {shape.n_in})"
                )
        return slots
