"""How a budget is shared out among layers at the start. The total is always exactly the budget that was asked for."""

import contextlib
import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Shape: TypeAlias = tuple[int, int]  # rows (outputs), columns (inputs)
Allocation: TypeAlias = "str | Sequence[float] | Mapping[str, float]"

# Connectivity of each matrix in units of the global one, as the paper prints it for its own networks (appendix A,
# "Initialization of connectivity matrices"). Keys are (inputs, outputs) from first to last.
PAPER_MULTIPLIERS: dict[tuple[Shape, ...], tuple[float, ...]] = {
    ((784, 300), (300, 100), (100, 10)): (0.75, 2.3, 22.8),
    ((1600, 64), (2304, 384), (384, 192)): (4.0, 0.4, 4.0),
    ((39, 800), (200, 800), (200, 39)): (1.8, 0.6, 6.0),
}


def whole(name: str, value: Any) -> int:
    """A whole number of any type that is one, NumPy's too."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} (={value!r}) must be a whole number") from None


def settle_budget(connectivity: float | None, budget: int | None, possible: int) -> int:
    """The number of connections that was asked for, by share or by count."""
    if (connectivity is None) == (budget is None):
        raise ValueError(f"exactly one of connectivity (={connectivity}) and budget (={budget}) must be given")
    if connectivity is not None:
        if isinstance(connectivity, bool) or not isinstance(connectivity, numbers.Real):
            raise ValueError(f"connectivity (={connectivity!r}) must be a number in (0, 1]")
        if not (0 < connectivity <= 1):
            raise ValueError(f"connectivity (={connectivity}) must be in (0, 1]")
        budget = round(float(connectivity) * possible)
        if budget < 1:
            raise ValueError(f"connectivity (={connectivity}) of {possible} possible connections must leave at least one")
    budget = whole("budget", budget)
    if not 1 <= budget <= possible:
        raise ValueError(f"budget (={budget}) must be in [1, {possible}], the number of possible connections")
    return budget


def apportion(weights: Sequence[float], capacities: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to ``weights``, none above its capacity, their sum exactly ``total``.

    Rounding is by largest remainder. Every layer that can hold a connection gets one, if the total suffices.
    """
    if total > sum(capacities):
        raise ValueError(f"budget (={total}) must be in [1, {sum(capacities)}], what the layers have room for")
    exact = [0.0] * len(weights)
    open_layers = {i for i, capacity in enumerate(capacities) if capacity > 0 and weights[i] > 0}
    left = float(total)
    while open_layers:
        weight = sum(weights[i] for i in open_layers)
        full = {i for i in open_layers if left * weights[i] / weight >= capacities[i]}
        if not full:
            for i in open_layers:
                exact[i] = left * weights[i] / weight
            break
        for i in full:
            exact[i] = float(capacities[i])
            left -= capacities[i]
        open_layers -= full
    counts = [min(math.floor(value + 1e-9), capacity) for value, capacity in zip(exact, capacities, strict=True)]
    by_remainder = sorted(range(len(counts)), key=lambda i: counts[i] - exact[i])
    while (missing := total - sum(counts)) > 0:
        takers = [i for i in by_remainder if counts[i] < capacities[i]]
        for i in takers[:missing]:
            counts[i] += 1
    if total >= sum(capacity > 0 for capacity in capacities):
        for i, capacity in enumerate(capacities):
            if counts[i] == 0 and capacity > 0:
                counts[max(range(len(counts)), key=counts.__getitem__)] -= 1
                counts[i] = 1
    return counts


def _paper(shapes: Sequence[Shape]) -> list[float]:
    """The paper's own multipliers for its networks; elsewhere its rule of thumb, equal counts and small ones dense."""
    multipliers = PAPER_MULTIPLIERS.get(tuple((columns, rows) for rows, columns in shapes))
    if multipliers is None:
        return [1.0 for _ in shapes]
    return [m * rows * columns for m, (rows, columns) in zip(multipliers, shapes, strict=True)]


RULES: dict[str, Callable[[Sequence[Shape]], list[float]]] = {
    "uniform": lambda shapes: [float(rows * columns) for rows, columns in shapes],
    # Connections in proportion to rows + columns (Mocanu et al. 2018): small matrices are wired more densely.
    "erdos-renyi": lambda shapes: [float(rows + columns) for rows, columns in shapes],
    "equal": lambda shapes: [1.0 for _ in shapes],
    "paper": _paper,
}


def read_allocation(text: str) -> Allocation:
    """An allocation as a text says it: the name of a rule, or one value for each layer with commas between them."""
    if text in RULES:
        return text
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return [number(part.strip()) for part in text.split(",")]
    rule = f"must be one of {', '.join(RULES)}, or counts or connectivities of all layers, as in 1764,690,228"
    raise ValueError(f"allocation (={text!r}) {rule}")


def allocate(
    names: Sequence[str], shapes: Sequence[Shape], allocation: Allocation, connectivity: float | None,
    budget: int | None, capacities: Sequence[int] | None = None,
) -> list[int]:
    """Connections of each layer at the start.

    ``allocation`` is the name of a rule, or one value for each layer (a list, or a mapping from layer name): counts
    if they are integers, connectivities in (0, 1] if they are floats. Given values alone set the budget; together with
    a connectivity or a budget, given connectivities are proportions of it.
    """
    sizes = [rows * columns for rows, columns in shapes]
    possible = sum(sizes)
    capacities = sizes if capacities is None else capacities
    if isinstance(allocation, str):
        if allocation not in RULES:
            raise ValueError(f"allocation (={allocation!r}) must be one of {sorted(RULES)} or a value for each layer")
        return apportion(RULES[allocation](shapes), capacities, settle_budget(connectivity, budget, possible))
    if isinstance(allocation, Mapping):
        missing = [name for name in names if name not in allocation]
        unknown = [name for name in allocation if name not in names]
        if missing or unknown:
            given = f"missing {missing}, unknown {unknown}, layers are {list(names)}"
            raise ValueError(f"allocation must name every sparse layer: {given}")
        allocation = [allocation[name] for name in names]
    if len(allocation) != len(names):
        raise ValueError(f"allocation has {len(allocation)} values for {len(names)} layers ({list(names)})")
    values = list(allocation)
    if all(isinstance(value, numbers.Integral) for value in values):
        counts = [whole(f"allocation of layer {name!r}", value) for name, value in zip(names, values, strict=True)]
        for name, count, capacity in zip(names, counts, capacities, strict=True):
            if not 0 <= count <= capacity:
                raise ValueError(f"allocation of layer {name!r} (={count}) must be in [0, {capacity}]")
        total = sum(counts)
        if total < 1:
            raise ValueError("allocation must give at least one connection in all")
        asked = total if (connectivity, budget) == (None, None) else settle_budget(connectivity, budget, possible)
        if asked != total:
            raise ValueError(f"allocation adds up to {total} connections, but the budget is {asked}")
        return counts
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, numbers.Real) or not 0 < value <= 1:
            raise ValueError(f"allocation of layer {name!r} (={value!r}) must be a connectivity in (0, 1]")
    weights = [float(value) * size for value, size in zip(values, sizes, strict=True)]
    if (connectivity, budget) == (None, None):
        return [max(1, round(weight)) if size else 0 for weight, size in zip(weights, sizes, strict=True)]
    return apportion(weights, capacities, settle_budget(connectivity, budget, possible))
