"""Algorithm 1 without waiting for the device: everything is K long, whoever dies, and nothing is asked.

A step that is not finite is not taken, as everywhere; but nobody looks, so it is said where someone asks for numbers: the
counts of such a step are -1.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.device.draws import Regions, draw, layers_by_share
from wirebound.ops.device.fixed import NOTHING, counted_before, front, mask_of
from wirebound.ops.layout import pack
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.reference.open_columns import OpenColumns
from wirebound.ops.rule import Carried, Counts, DriftAndNoise, Rule, RuleKind, State, StepCounts, WiringArrays

_Factor = float | Tensor


def _edges(wiring: WiringArrays) -> Tensor:
    """Where each layer's connections start, and K at the end."""
    return wiring.colptr[torch.tensor(wiring.geometry.column_start, device=wiring.colptr.device)]


def _sgd(theta: Tensor, grad: Tensor, rule: Rule, state: State, lr: _Factor, decay: _Factor) -> tuple[Tensor, dict[str, Tensor]]:
    direction, kept = grad + decay * theta if rule.weight_decay else grad, {}
    if state.momentum is not None:
        kept["momentum"] = direction if rule.fresh else state.momentum * rule.momentum + direction * (1 - rule.dampening)
        direction = direction + rule.momentum * kept["momentum"] if rule.nesterov else kept["momentum"]
    return theta - lr * direction, kept


def _adam(
    theta: Tensor, grad: Tensor, rule: Rule, state: State, lr: _Factor, decay: _Factor, newborn: _Factor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    assert state.exp_avg is not None
    assert state.exp_avg_sq is not None
    if rule.weight_decay and rule.decoupled:
        theta = theta * (1 - lr * decay)
    elif rule.weight_decay:
        grad = grad + decay * theta
    correction1: float | Tensor
    correction2: float | Tensor
    if state.born is None:  # all are as old
        correction1, correction2 = 1 - rule.beta1**state.clock, (1 - rule.beta2**state.clock) ** 0.5
    else:
        age = (state.clock - state.born).to(torch.float64)
        correction1, squared = ((1 - beta**age).to(theta.dtype) for beta in (rule.beta1, rule.beta2))
        correction2 = squared.sqrt()
    first = torch.lerp(state.exp_avg, grad, 1 - rule.beta1)
    second = state.exp_avg_sq
    if newborn is not None:
        second = torch.where(second == 0, newborn * correction2**2, second)
    second = second * rule.beta2 + grad * grad * (1 - rule.beta2)
    kept, most = {"exp_avg": first, "exp_avg_sq": second}, second
    if state.max_exp_avg_sq is not None:
        most = kept["max_exp_avg_sq"] = torch.maximum(state.max_exp_avg_sq, second)
    return theta - lr * (first / correction1) / (most.sqrt() / correction2 + rule.eps), kept


class _Factors:
    """The numbers of the drifts: one for all connections, or one for each where layers differ."""

    def __init__(self, drifts: Sequence[DriftAndNoise], theta: Tensor, edges: Tensor | None) -> None:
        self._drifts, self._theta = drifts, theta
        self._layer: Tensor | None = None
        if len(drifts) > 1:
            assert edges is not None
            places = torch.arange(theta.numel(), device=theta.device)
            self._layer = torch.searchsorted(edges[1:], places, right=True).clamp(max=len(drifts) - 1)

    def of(self, name: str, factor: float = 1.0) -> Any:
        values = [float(getattr(drift, name)) * factor for drift in self._drifts] or [0.0 if name in ("shrink", "noise_std") else factor]
        if self._layer is None:
            return values[0]
        return torch.tensor(values, dtype=self._theta.dtype, device=self._theta.device)[self._layer]

    def any(self, name: str) -> bool:
        return any(getattr(drift, name) for drift in self._drifts)

    def mask(self, name: str) -> Tensor | None:
        """Which connections have drifts that are frozen, or lazy; None for none."""
        if not self.any(name):
            return None
        if self._layer is None:
            return torch.ones_like(self._theta, dtype=torch.bool)
        return torch.tensor([getattr(drift, name) for drift in self._drifts], device=self._theta.device)[self._layer]

    def still(self, grad: Tensor | None) -> Tensor | None:
        """Which connections stay as they are in this step; None for none."""
        frozen, lazy = self.mask("frozen"), self.mask("lazy")
        if lazy is None or grad is None:
            return frozen
        untouched = lazy & (grad == 0)
        return untouched if frozen is None else frozen | untouched


def _moved(
    theta: Tensor, grad: Tensor | None, rule: Rule, state: State, factors: _Factors, name: tuple[int, int, int], sign_bound: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """θ and the optimiser's arrays after the update and the drift; ``name`` is (seed, stream, step)."""
    before_it, kept, still = theta, dict[str, Tensor](), factors.still(grad)
    if rule.kind != RuleKind.NONE:
        assert grad is not None
        grad = -grad if rule.maximize else grad
        lr, decay = factors.of("lr_factor", rule.lr), factors.of("decay_factor", rule.weight_decay)
        if rule.kind is RuleKind.SGD:
            theta, kept = _sgd(theta, grad, rule, state, lr, decay)
        else:
            newborn = factors.of("second_moment") if factors.any("second_moment") else None
            theta, kept = _adam(theta, grad, rule, state, lr, decay, newborn)
    if sign_bound and factors.any("shrink"):
        theta = theta - factors.of("shrink")
    if sign_bound and factors.any("noise_std"):
        nu = philox.normals(*name, theta.numel(), theta.device)
        theta = theta + nu.to(theta.dtype) * factors.of("noise_std")
    if still is not None:
        theta = torch.where(still, before_it, theta)
        kept = {name: torch.where(still, getattr(state, name), value) for name, value in kept.items()}
    return theta, kept


def exchange(
    wiring: WiringArrays, carried: Sequence[tuple[Tensor, Any]], dead: Tensor, newborns: Tensor, negative: Tensor, count: Tensor | int
) -> tuple[Tensor, Tensor]:
    """Replace those where ``dead`` is true by the first ``count`` of the sorted ``newborns``, in place; (born, died)."""
    geometry, colptr, packed_rows = wiring.geometry, wiring.colptr, wiring.packed_rows
    budget, edges = packed_rows.numel(), _edges(wiring)
    if not budget or not newborns.numel():
        none = torch.zeros(geometry.layers, dtype=torch.int64, device=colptr.device)
        return none, none
    places = torch.arange(budget, device=colptr.device)
    alive, number = ~dead, torch.arange(newborns.numel(), device=colptr.device)
    kept = front(alive, places, budget, 0)  # where each survivor was
    survivors = front(alive, geometry.positions(packed_rows, colptr), budget)
    used = number < count
    # Two sorted lists merge: the place of each is its number plus those of the other list before it.
    place_new = torch.where(used, number + torch.searchsorted(survivors, newborns), budget)
    place_old = torch.where(survivors == NOTHING, budget, places + torch.searchsorted(newborns, survivors))
    source = places.new_zeros(budget + 1).scatter_(0, place_old, kept)[:budget]
    is_new = mask_of(place_new, budget + 1)[:budget]
    which = number.new_zeros(budget + 1).scatter_(0, place_new, number)[:budget]
    columns, rows = geometry.locate(torch.where(used, newborns, 0))
    values = []
    for array, fill in ((packed_rows, pack(rows, negative)), *carried):
        given = fill[which] if isinstance(fill, Tensor) and fill.dim() else fill
        moved = array.index_select(0, source)
        values.append(torch.where(is_new, given, moved).to(array.dtype))
    columns = torch.where(used, columns, colptr.numel())
    born_before = torch.searchsorted(columns, torch.arange(colptr.numel(), device=colptr.device))
    pointers = colptr + born_before - counted_before(dead, colptr)
    died = counted_before(dead, edges).diff()
    with torch.no_grad():
        for array, value in zip((packed_rows, *(array for array, _ in carried), colptr), (*values, pointers), strict=True):
            array.copy_(value)
    return (_edges(wiring) - edges).diff() + died, died


def newborns_among(
    wiring: WiringArrays, occupied: Tensor, counts: Tensor, most: int, step: int, by_layer: bool
) -> tuple[Tensor, Tensor]:
    """Sorted dormant positions, ``most`` long: ``counts`` of each layer, or one count for all; and whether all were found.

    ``occupied`` are sorted positions, with ``NOTHING`` at the end.
    """
    geometry, device = wiring.geometry, occupied.device
    starts_of = geometry.position_start[:-1] if by_layer else (0,)
    sizes = geometry.sizes if by_layer else (geometry.possible,)
    starts = torch.tensor(starts_of, device=device)
    bounds = torch.searchsorted(occupied, torch.tensor([*starts_of, geometry.possible], device=device))
    rooms = torch.tensor(sizes, device=device) - bounds.diff()
    streams = [stream_of(Stream.NEWBORN, wiring.index, layer=i if by_layer else None) for i in range(len(sizes))]
    may_fill = any(size < 2 * wiring.packed_rows.numel() for size in sizes)
    ranks, region, complete = draw(Regions(starts, rooms, counts, streams), most, wiring.seed, step, may_fill)
    number = torch.arange(occupied.numel(), device=device)
    held = torch.searchsorted(bounds[1:], number, right=True).clamp(max=len(sizes) - 1)
    free_before = torch.where(occupied == NOTHING, occupied, occupied - (number - bounds[held]))
    found = ranks + torch.searchsorted(free_before, ranks, right=True) - bounds[region]
    return torch.where(ranks == NOTHING, ranks, found), complete


def rewire(
    wiring: WiringArrays, carried: Carried, dead: Tensor, step: int, shares: Sequence[float] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace the dead, a mask, by newborns, in place; (born, died) of each layer, and who died: nobody, if not enough
    newborns were found, which does not happen."""
    geometry, budget = wiring.geometry, dead.numel()
    positions = geometry.positions(wiring.packed_rows, wiring.colptr)
    survivors = front(~dead, positions, budget)
    count = dead.sum()
    counts = count.view(1)
    if shares is not None:
        counts = shared_counts(wiring, survivors, count, budget, step, shares)
    newborns, complete = newborns_among(wiring, survivors, counts, budget, step, shares is not None)
    dead, count = dead & complete, torch.where(complete, count, 0)
    negative = philox.negative_signs(torch.where(newborns == NOTHING, 0, newborns), wiring.seed, wiring.index)
    born, died = exchange(wiring, carried, dead, newborns, negative, count)
    return born, died, dead


def shared_counts(
    wiring: WiringArrays, occupied: Tensor, count: Tensor, most: int, step: int, shares: Sequence[float]
) -> Tensor:
    """How many of ``count`` newborns each layer gets, drawn by share; ``occupied`` are sorted positions."""
    geometry, device = wiring.geometry, occupied.device
    edges = torch.searchsorted(occupied, torch.tensor(geometry.position_start, device=device))
    room = torch.tensor(geometry.sizes, device=device) - edges.diff()
    full = [size < wiring.packed_rows.numel() for size in geometry.sizes]
    stream = stream_of(Stream.NEWBORN_LAYER, wiring.index)
    return layers_by_share(count, most, shares, room, full, wiring.seed, stream, step)


def refuse_open_columns() -> NoReturn:
    instead = 'train on the CPU, or use lazy="off", by which they are drawn among all columns'
    raise NotImplementedError(f"newborns cannot be drawn among columns with an input on another device than the CPU: {instead}")


class DeviceSteps:
    def update_(
        self, theta: Tensor, grad: Tensor | None, rule: Rule, state: State, drifts: Sequence[DriftAndNoise],
        seed: int, stream: int, step: int, *, sign_bound: bool, clamp: bool, edges: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """As in the reference. Who asks for the dead waits for the device; a ``clamp`` or free signs leave none."""
        if edges is None and len(drifts) > 1:
            edges = torch.tensor([drifts[0].first, *(drift.last for drift in drifts)], device=theta.device)
        moved, kept = _moved(theta, grad, rule, state, _Factors(drifts, theta, edges), (seed, stream, step), sign_bound)
        taken = _finite(theta) & (True if grad is None else _finite(grad))
        for name, value in kept.items():
            array = getattr(state, name)
            array.copy_(torch.where(taken, value, array))
        moved = moved.clamp(min=0) if sign_bound and clamp else moved
        theta.copy_(torch.where(taken, moved, theta))
        if sign_bound and not clamp:
            return torch.nonzero(theta < 0).view(-1)
        return torch.empty(0, dtype=torch.int64, device=theta.device)

    def rewire_(
        self, wiring: WiringArrays, carried: Carried, dead: Tensor, step: int, shares: Sequence[float] | None,
        open_columns: OpenColumns | None = None,
    ) -> tuple[Counts, Counts]:  # fmt: skip
        if open_columns is not None:
            refuse_open_columns()
        born, died, _ = rewire(wiring, carried, mask_of(dead, wiring.packed_rows.numel()), step, shares)
        return born, died

    def step_(
        self, wiring: WiringArrays, theta: Tensor, grad: Tensor | None, rule: Rule, state: State,
        drifts: Sequence[DriftAndNoise], carried: Carried, step: int, shares: Sequence[float] | None, *, clamp: bool,
        open_columns: OpenColumns | None = None,
    ) -> StepCounts:  # fmt: skip
        if open_columns is not None:
            refuse_open_columns()
        theta, noise = theta.detach(), stream_of(Stream.NOISE, wiring.index)
        factors = _Factors(drifts, theta, _edges(wiring))
        moved, kept = _moved(theta, grad, rule, state, factors, (wiring.seed, noise, step), True)
        taken = _finite(theta) & _finite(moved) & (True if grad is None else _finite(grad))
        dead = (moved < 0) & taken
        for name, value in kept.items():
            array = getattr(state, name)
            array.copy_(torch.where(taken, value, array))
        theta.copy_(torch.where(taken, moved.clamp(min=0) if clamp else moved, theta))
        edges = _edges(wiring)
        if clamp:
            born = died = torch.zeros(wiring.geometry.layers, dtype=torch.int64, device=theta.device)
        else:
            born, died, dead = rewire(wiring, [(theta, 0), *carried], dead, step, shares)
            theta.clamp_(min=0)  # who would have died if there had been newborns
            edges = _edges(wiring)
        active = counted_before(theta >= 0, edges).diff()
        return StepCounts(born, died, torch.where(taken, active, -1))


def _finite(values: Tensor) -> Tensor:
    return torch.isfinite(values).all()
