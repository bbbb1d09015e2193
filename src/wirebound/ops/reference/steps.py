"""Algorithm 1 in plain torch.

    θ ← optimiser(θ, ∂E/∂θ)            torch's own formulas; Adam's bias correction by the connection's own age
    θ ← θ − ηα + √(2ηT) ν              the drift, per layer
    dead: θ < 0                        leave, and as many dormant connections are born

Every array that is carried along (θ, optimiser state) is put in order again, in place: O(K) time, no sort of K numbers.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.faults import not_finite
from wirebound.ops.layout import Geometry, pack
from wirebound.ops.philox import Sample, Stream, stream_of
from wirebound.ops.reference.open_columns import OpenColumns, dormant_counts, draw_in_open
from wirebound.ops.rule import Carried, Counts, DriftAndNoise, Rule, RuleKind, State, StepCounts, WiringArrays


def _sgd_(theta: Tensor, grad: Tensor, rule: Rule, state: State, newborn: float) -> None:
    direction = grad + rule.weight_decay * theta if rule.weight_decay else grad
    if state.momentum is not None:
        if rule.fresh:
            state.momentum.copy_(direction)
        else:
            state.momentum.mul_(rule.momentum).add_(direction, alpha=1 - rule.dampening)
        direction = direction + rule.momentum * state.momentum if rule.nesterov else state.momentum
    theta.add_(direction, alpha=-rule.lr)


def _adam_(theta: Tensor, grad: Tensor, rule: Rule, state: State, newborn: float) -> None:
    assert state.exp_avg is not None
    assert state.exp_avg_sq is not None
    if rule.weight_decay and rule.decoupled:
        theta.mul_(1 - rule.lr * rule.weight_decay)
    elif rule.weight_decay:
        grad = grad + rule.weight_decay * theta
    # A connection that was born yesterday has moments that are one step old, whatever the optimiser's own count says;
    # without the births all are as old, and newborns have the second moment that is given them.
    age = torch.tensor(float(state.clock)) if state.born is None else state.clock - state.born
    age = age.to(theta.device, torch.float64)
    correction1 = (1 - rule.beta1**age).to(theta.dtype)
    correction2 = (1 - rule.beta2**age).sqrt().to(theta.dtype)
    state.exp_avg.lerp_(grad, 1 - rule.beta1)
    if newborn:
        state.exp_avg_sq.copy_(torch.where(state.exp_avg_sq == 0, newborn * correction2**2, state.exp_avg_sq))
    state.exp_avg_sq.mul_(rule.beta2).addcmul_(grad, grad, value=1 - rule.beta2)
    second = state.exp_avg_sq
    if state.max_exp_avg_sq is not None:
        torch.maximum(state.max_exp_avg_sq, second, out=state.max_exp_avg_sq)
        second = state.max_exp_avg_sq
    denominator = second.sqrt() / correction2 + rule.eps
    theta.addcdiv_(state.exp_avg / correction1, denominator, value=-rule.lr)


_RULES = {RuleKind.SGD: _sgd_, RuleKind.ADAM: _adam_}


def _pieces(rule: Rule, drifts: Sequence[DriftAndNoise], count: int) -> Iterator[tuple[int, int, Rule, float]]:
    """Which connections move by which rule, and how newborns start: all alike, or each drift that is special by its own."""
    at = 0
    for drift in drifts:
        if not (drift.frozen or drift.lr_factor != 1 or drift.decay_factor != 1 or drift.second_moment):
            continue
        if at < drift.first:
            yield at, drift.first, rule, 0.0
        if not drift.frozen:
            lr, decay = rule.lr * drift.lr_factor, rule.weight_decay * drift.decay_factor
            yield drift.first, drift.last, replace(rule, lr=lr, weight_decay=decay), drift.second_moment
        at = drift.last
    if at < count:
        yield at, count, rule, 0.0


def draw_layers(
    count: int, shares: Sequence[float], room: Sequence[int], seed: int, stream: int, step: int
) -> list[int]:
    """How many newborns each layer gets when layers are drawn by ``shares``; a full layer passes its excess on."""
    given, used = [0] * len(shares), 0
    while count:
        weights = [share if given[i] < room[i] else 0.0 for i, share in enumerate(shares)]
        if not sum(weights):  # only layers without a share have room left
            weights = [float(given[i] < room[i]) for i in range(len(room))]
        edges = torch.tensor(weights, dtype=torch.float64, device="cpu").cumsum(0)
        first = used // 4 * 4
        w = philox.words(seed, stream, step, used - first + count, torch.device("cpu"), first=first)[used - first :]
        u = w.to(torch.float64) * 2.0**-32 * edges[-1]
        drawn = torch.bincount(torch.searchsorted(edges, u, right=True), minlength=len(shares)).tolist()
        used += count
        count = 0
        for i, n in enumerate(drawn):
            taken = min(n, room[i] - given[i])
            given[i] += taken
            count += n - taken
    return given


def _bounds(geometry: Geometry, positions: Tensor) -> list[int]:
    """Where each layer starts among sorted positions, and the last ends."""
    edges = torch.tensor(geometry.position_start, device=positions.device)
    return torch.searchsorted(positions, edges).tolist()


class Dormant:
    """The positions of some layers that are not ``occupied`` (sorted), by rank: as if the other layers were not there."""

    def __init__(self, geometry: Geometry, occupied: Tensor, layers: Sequence[int]) -> None:
        bounds, sizes = _bounds(geometry, occupied), [geometry.sizes[i] for i in layers]
        self.ends = list(itertools.accumulate(sizes))
        self.shift = [geometry.position_start[i] - (end - n) for i, end, n in zip(layers, self.ends, sizes, strict=True)]
        own = [occupied[bounds[i] : bounds[i + 1]] - by for i, by in zip(layers, self.shift, strict=True)]
        self.occupied = torch.cat(own) if own else occupied[:0]
        self.size = sum(sizes) - self.occupied.numel()

    def at(self, ranks: Tensor) -> Tensor:
        places = philox.dormant_at(ranks, self.occupied)
        if len(self.shift) < 2:
            return places + sum(self.shift)
        layer = torch.searchsorted(torch.tensor(self.ends, device=ranks.device), places, right=True)
        return places + torch.tensor(self.shift, device=ranks.device)[layer]


def draw_newborns(
    wiring: WiringArrays, survivors: Tensor, count: int, step: int, shares: Sequence[float] | None,
    closed: Sequence[bool] | None = None, sample: Sample = philox.sample_sorted,
    open_columns: OpenColumns | None = None,
) -> Tensor:  # fmt: skip
    """Sorted positions of ``count`` newborns: uniform over all dormant ones, or over those of layers drawn by share.

    Nobody is born in layers that are ``closed``, or outside of ``open_columns`` while these have room: a draw counts positions
    as if those layers and columns were not there.
    """
    if open_columns is not None and closed is not None:
        open_columns = open_columns.without(closed)
    if open_columns is not None and sum(room := dormant_counts(open_columns, survivors)) >= count:
        name = (wiring.seed, wiring.index, step)
        if shares is None:
            return draw_in_open(open_columns, survivors, count, name, sample)
        counts = draw_layers(count, shares, room, wiring.seed, stream_of(Stream.NEWBORN_LAYER, wiring.index), step)
        return draw_in_open(open_columns, survivors, counts, name, sample)
    geometry, device = wiring.geometry, survivors.device
    open_layers = [i for i in range(geometry.layers) if closed is None or not closed[i]]
    if shares is not None:
        room, bounds = [0] * geometry.layers, _bounds(geometry, survivors)
        for i in open_layers:
            room[i] = geometry.sizes[i] - (bounds[i + 1] - bounds[i])
        counts = draw_layers(count, shares, room, wiring.seed, stream_of(Stream.NEWBORN_LAYER, wiring.index), step)
        return draw_in_layers(wiring, survivors, counts, step, sample)
    dormant, stream = Dormant(geometry, survivors, open_layers), stream_of(Stream.NEWBORN, wiring.index)
    return dormant.at(sample(dormant.size, count, wiring.seed, stream, step, device))


def draw_in_layers(
    wiring: WiringArrays, survivors: Tensor, counts: Sequence[int], step: int, sample: Sample = philox.sample_sorted
) -> Tensor:
    """Sorted positions of ``counts[i]`` newborns in layer i, uniform over the dormant ones of that layer."""
    geometry, device, bounds = wiring.geometry, survivors.device, _bounds(wiring.geometry, survivors)
    born = [torch.empty(0, dtype=torch.int64, device=device)]
    for i, n in enumerate(counts):
        if n:
            stream = stream_of(Stream.NEWBORN, wiring.index, layer=i)
            room = geometry.sizes[i] - (bounds[i + 1] - bounds[i])
            ranks = sample(room, n, wiring.seed, stream, step, device)
            start = geometry.position_start[i]
            born.append(start + philox.dormant_at(ranks, survivors[bounds[i] : bounds[i + 1]] - start))
    return torch.cat(born)


def replace_(
    wiring: WiringArrays, carried: Sequence[tuple[Tensor, float | Tensor]], dead: Tensor, newborns: Tensor, negative: Tensor,
    survivors: Tensor,
) -> tuple[Counts, Counts]:
    """Replace the ``dead`` (sorted indices) by as many ``newborns`` (sorted dormant positions), in place.

    ``carried`` are (array of length K, what newborns hold there: one value, or one for each). ``negative`` says
    whether the sign of each newborn is -1; ``survivors`` are the sorted positions of who stays. Returns (born, died) of each layer.
    """
    geometry, colptr, packed_rows = wiring.geometry, wiring.colptr, wiring.packed_rows
    edges = torch.tensor(geometry.column_start, device=colptr.device)
    bounds = colptr[edges]
    died = torch.searchsorted(dead, bounds).diff()
    kept = _survivors(packed_rows, dead)
    columns, rows = geometry.locate(newborns)
    # Two sorted lists merge: a newborn's place is its number plus the survivors before it, and these take the other places
    # in their order. One gather for each array, from where its elements were, then moves all survivors.
    place_new = torch.arange(newborns.numel(), device=packed_rows.device) + torch.searchsorted(survivors, newborns)
    source = torch.zeros(packed_rows.numel(), dtype=torch.int64, device=packed_rows.device)
    source[_survivors(packed_rows, place_new)] = kept
    moving, values = [(packed_rows, pack(rows, negative)), *carried], []
    for array, fill in moving:
        values.append(array.index_select(0, source))
        values[-1][place_new] = fill
    # colptr[c] counts the connections left of column c: those that stayed, and the newborns that came in there.
    born_before = torch.searchsorted(columns, torch.arange(colptr.numel(), device=packed_rows.device))
    values.append(colptr + born_before - torch.searchsorted(dead, colptr))
    with torch.no_grad():  # one call: an interrupt finds all of it done, or nothing
        torch._foreach_copy_([*(array for array, _ in moving), colptr], values)
    return (colptr[edges] - bounds).diff() + died, died


def _survivors(packed_rows: Tensor, dead: Tensor) -> Tensor:
    """The places of a wiring that are not among these, sorted."""
    alive = torch.ones(packed_rows.numel(), dtype=torch.bool, device=packed_rows.device)
    alive[dead] = False
    return torch.nonzero(alive).view(-1)


def _all_finite(values: Tensor) -> bool:
    # What is not finite makes the sum so, and one sum takes a tenth of the time; large numbers may do the same.
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


class _Untouched:
    """The connections of lazy drifts whose gradient is exactly 0, and all that a step would change of them."""

    def __init__(self, theta: Tensor, grad: Tensor | None, state: State, drifts: Sequence[DriftAndNoise]) -> None:
        self.kept = []
        for first, last in ((drift.first, drift.last) for drift in drifts if drift.lazy):
            assert grad is not None
            moments = (state.momentum, state.exp_avg, state.exp_avg_sq, state.max_exp_avg_sq)
            for array in (theta, *(moment for moment in moments if moment is not None)):
                part = array[first:last]
                self.kept.append((part, grad[first:last] == 0, part.clone()))

    def put_back_(self) -> None:
        for part, untouched, before in self.kept:
            part.copy_(torch.where(untouched, before, part))


class ReferenceSteps:
    def update_(
        self, theta: Tensor, grad: Tensor | None, rule: Rule, state: State, drifts: Sequence[DriftAndNoise],
        seed: int, stream: int, step: int, *, sign_bound: bool, clamp: bool,
    ) -> Tensor:  # fmt: skip
        """Move θ in place; the sorted indices of the connections that died, θ < 0.

        ``clamp``: a step without rewiring, θ stops at 0 instead of dying. Not ``sign_bound``: θ may take any sign,
        nothing drifts and nothing dies.
        """
        if not _all_finite(theta):
            raise not_finite(step)
        if rule.kind != RuleKind.NONE:
            assert grad is not None
            if not _all_finite(grad):  # before anything is written
                raise not_finite(step)
        untouched = _Untouched(theta, grad, state, drifts)
        if rule.kind != RuleKind.NONE:
            assert grad is not None
            grad = -grad if rule.maximize else grad
            for first, last, own, newborn in _pieces(rule, drifts, theta.numel()):
                parts: dict[str, Any] = {name: t[first:last] for name, t in vars(state).items() if isinstance(t, Tensor)}
                _RULES[rule.kind](theta[first:last], grad[first:last], own, replace(state, **parts), newborn)
        for drift in (drift for drift in drifts if sign_bound and not drift.frozen):
            part = theta[drift.first : drift.last]
            if drift.shrink:
                part.sub_(drift.shrink)
            if drift.noise_std:
                nu = philox.normals(seed, stream, step, part.numel(), theta.device, first=drift.first)
                part.add_(nu.to(theta.dtype), alpha=drift.noise_std)
        if not _all_finite(theta):
            raise not_finite(step)
        if sign_bound and clamp:
            theta.clamp_(min=0)
        untouched.put_back_()
        if sign_bound and not clamp:
            return torch.nonzero(theta < 0).view(-1)
        return torch.empty(0, dtype=torch.int64, device=theta.device)

    def rewire_(
        self, wiring: WiringArrays, carried: Carried, dead: Tensor, step: int, shares: Sequence[float] | None,
        open_columns: OpenColumns | None = None,
    ) -> tuple[Counts, Counts]:  # fmt: skip
        """Replace the ``dead`` (sorted indices) by newborns, in place, all that is ``carried`` (θ too) along; (born,
        died) of each layer. Newborns are drawn uniformly over all dormant positions, or their layers by ``shares``; with
        ``open_columns`` over the dormant positions in there."""
        positions = wiring.geometry.positions(wiring.packed_rows, wiring.colptr)
        survivors = positions.index_select(0, _survivors(wiring.packed_rows, dead))
        newborns = draw_newborns(wiring, survivors, dead.numel(), step, shares, open_columns=open_columns)
        negative = philox.negative_signs(newborns, wiring.seed, wiring.index)
        return replace_(wiring, carried, dead, newborns, negative, survivors)

    def step_(
        self, wiring: WiringArrays, theta: Tensor, grad: Tensor | None, rule: Rule, state: State,
        drifts: Sequence[DriftAndNoise], carried: Carried, step: int, shares: Sequence[float] | None, *, clamp: bool,
        open_columns: OpenColumns | None = None,
    ) -> StepCounts:  # fmt: skip
        """``update_`` and then ``rewire_`` for who died, in place; ``carried`` moves along beside θ."""
        theta, noise = theta.detach(), stream_of(Stream.NOISE, wiring.index)
        dead = self.update_(theta, grad, rule, state, drifts, wiring.seed, noise, step, sign_bound=True, clamp=clamp)
        born: Counts = [0] * wiring.geometry.layers
        died = born
        if dead.numel():
            born, died = self.rewire_(wiring, [(theta, 0), *carried], dead, step, shares, open_columns)
        bounds = wiring.colptr[torch.tensor(wiring.geometry.column_start, device=theta.device)]
        active_before = torch.nn.functional.pad((theta >= 0).cumsum(0), (1, 0))
        return StepCounts(born, died, active_before[bounds].diff())
