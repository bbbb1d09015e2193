"""The arguments that all sparse layers have beside those of their torch twins, and the wiring that they ask for."""

from collections.abc import Sequence
from typing import TypedDict

import torch

from wirebound.wiring import Allocation, Constraints, LayerShape, Wiring, allocate

Slot = tuple[Wiring, int]  # a wiring and the number of one of its layers


class WiringOptions(TypedDict, total=False):
    """How a sparse layer gets its connections: keyword arguments of every sparse layer.

    Args:
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        allocation: how several matrices share the budget at the start, ``"erdos-renyi"`` unless given, as in ``sparsify``.
        seed: decides positions, signs and first weights; 0 unless given.
        init: ``"dense-fan-in"`` (the default, the paper's N(0,1)/√fan-in) or ``"sparse-fan-in"``; biases start at 0.
        constraints: caps on the fan-in and fan-out of neurons, and signs that belong to them.
        device, dtype: of θ and biases.
        wiring: use layers of this wiring, from ``layer_id`` on, instead of an own one.
        layer_id: number of the first of them, 0 unless given.
        owner: whether this layer is the one that holds the wiring as a submodule, True unless given.
    """

    connectivity: float | None
    budget: int | None
    allocation: Allocation
    seed: int
    init: str
    constraints: Constraints | None
    device: torch.device | str | None
    dtype: torch.dtype | None
    wiring: Wiring | Sequence[Slot] | None
    layer_id: int
    owner: bool


def settle_options(options: WiringOptions, shapes: Sequence[LayerShape]) -> list[tuple[Wiring, int, bool]]:
    """Wiring, layer_id and owner for each matrix of a layer."""
    if unknown := options.keys() - WiringOptions.__annotations__.keys():
        raise TypeError(f"a sparse layer got an unexpected keyword argument {min(unknown)!r}")
    wiring, first = options.get("wiring"), options.get("layer_id", 0)
    if wiring is None:
        if first:
            raise ValueError(f"layer_id (={first}) must be 0 where no wiring is given")
        names, sizes = [shape.name for shape in shapes], [(shape.n_out, shape.n_in) for shape in shapes]
        asked = (options.get("allocation", "erdos-renyi"), options.get("connectivity"), options.get("budget"))
        counts = allocate(names, sizes, *asked)
        own = {name: value for name, value in options.items() if name in ("seed", "init", "constraints", "device", "dtype")}
        wiring = Wiring(shapes, counts, **own)  # type: ignore[arg-type]
    if isinstance(wiring, Wiring):
        slots = [(wiring, first + i, options.get("owner", True) and i == 0) for i in range(len(shapes))]
    else:
        slots = [(each, number, number == 0) for each, number in wiring]
    for shape, (each, number, _) in zip(shapes, slots, strict=True):
        given = each.layers[number] if number < len(each.layers) else None
        if given is None or (given.n_out, given.n_in) != (shape.n_out, shape.n_in):
            found = "none" if given is None else f"{given.n_out} × {given.n_in}"
            wanted = f"the matrix {shape.name!r} (={shape.n_out} × {shape.n_in})"
            raise ValueError(f"layer {number} of the wiring (={found}) must be {wanted}")
    return slots
