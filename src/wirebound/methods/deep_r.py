"""DEEP R (Bellec et al. 2018, Algorithm 1): training and rewiring at once, exactly K connections after every step.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant
    while fewer than K are active:
        draw a dormant connection k' uniformly, activate it with θ_k' ← 0

η is the optimiser's current learning rate, α ``l1``, T ``temperature``, K the wiring's budget; − η ∂E/∂θ is the
optimiser's own step: SGD as in the paper, or any other that keeps state by element.

Differs from the paper in that α follows from a wanted turnover unless it is given (``turnover.py``); in that newborns
start with their layer's second moment where the optimiser keeps one; in that several steps may pass between rewirings
(``rewire_every``; θ then stops at 0 in between); and in that newborns of a global budget are spread over the layers by
their initial shares, as the authors' code does, unless ``newborns="uniform"``.

In layers that are given sparse rows (``lazy``) the first line is for all active connections whose column these rows have; all
others stand still. Newborns are drawn among the dormant connections of such columns, and connections at columns that never had an input die, a hundredth of them in
each step (``occurring.py``). Inputs that are always on make that Algorithm 1 again; with inputs that are off at times the
chain keeps its law (docs/theory.md).

With ``births="gradient"`` the last line of the box is another, which is no longer Algorithm 1, nor does its sampling of
a posterior hold: how many newborns each layer gets is drawn as before; in each such layer as many dormant connections as
``candidates`` · its active ones are drawn uniformly, and born are those of them whose gradient pulls θ up most, the
largest − sign · ∂E/∂w. Where fewer than needed have one > 0, the rest is drawn uniformly as before. Gradient, ℓ1, noise,
death, constant signs and K stay as they are. So they do with ``births="paths"``, where a layer's newborns are drawn in
proportion to the paths of length three that they close (``grow/topological.py``): where a first wiring is local, as one by
correlation is, newborns are as local, while most uniform ones are far from anything that their unit sees.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn, optim

from wirebound import ops, schedule
from wirebound.methods.declaration import AUTO, CANDIDATES, NEWBORNS, NOISE, TEMPERATURE, Setting
from wirebound.methods.grow import GrowRule, Growth, SampledGradient, Topological
from wirebound.methods.method import WiringMethod
from wirebound.methods.occurring import Occurring, check_states, states
from wirebound.methods.turnover import Turnover, next_look
from wirebound.methods.watching import Watching
from wirebound.ops.philox import Stream, stream_of
from wirebound.ops.rule import DriftAndNoise, RuleKind
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Noise, Rate, Scalar
from wirebound.wiring import Wiring, births_of_layers
from wirebound.wiring.connections import listed

PRICE = Setting("l1", "float", AUTO, "α, the ℓ1 pull of every active connection towards 0; auto: by the wanted turnover", least=0, words=(AUTO,))
REWIRE_EVERY = Setting("rewire_every", "int", 1, "steps between rewirings", least=1)
_LAYER = "layer of a newborn in a global budget: uniform over all dormant, or by initial share"
SHARE = Setting("newborns", "str", "share", _LAYER, choices=NEWBORNS)
_WANTED = "κ, with l1 auto: share of the connections replaced while one moves by its own strength"
TURNOVER = Setting("turnover", "float", 0.07, _WANTED, above=0)
_START = "Adam's second moment of a newborn: its layer's, or its own from the first gradient on"
MOMENTS = Setting("newborn_moments", "str", "layer", _START, choices=("layer", "own"))

_CHOICE = (
    "births: uniform among the dormant, as the paper has it, those of drawn candidates whose gradient pulls most, or those "
    "that close paths of length three (paths)"
)
_JUDGED = "whom a step moves, pulls and kills: on, those whose gradient is not exactly 0; off, all; auto, those with an input in layers with sparse rows"
LAZY = Setting("lazy", "str", AUTO, _JUDGED, choices=(AUTO, "on", "off"))
BIRTHS = Setting("births", "str", "uniform", _CHOICE, choices=("uniform", "gradient", "paths"))


@torch.no_grad()
def algorithm_1(
    wiring: Wiring, eta: float, alpha: float, temperature: float, step: int, shares: Sequence[float] | None = None
) -> list[int]:
    """One step of Algorithm 1 with plain SGD, line by line; newborns of each layer. The kernels are tested against it."""
    theta, gradient = wiring.theta.detach(), wiring.theta.grad
    normals, stream = ops.backend_on(theta.device).normals, stream_of(Stream.NOISE, wiring.index)
    nu = normals(wiring.seed, stream, step, theta.numel(), theta.device)
    assert gradient is not None
    theta -= eta * gradient  # gradient
    theta -= eta * alpha  # ℓ1
    theta += math.sqrt(2 * eta * temperature) * nu.to(theta.dtype)  # noise
    dead = torch.nonzero(theta < 0).view(-1)  # death
    born, _ = wiring.rewire_(dead, [], step, shares) if dead.numel() else ([0] * len(wiring.layers), [])  # birth, at θ = 0
    return born


def pull_and_push(l1: Scalar, temperature: Scalar, step: int, lr: float) -> tuple[float, float]:
    """ηα and √(2ηT) of this step."""
    schedule.check_rate("lr", lr)  # schedulers give any, but noise has the variance 2ηT
    eta_t = lr * schedule.at("temperature", temperature, step, lr)
    return lr * schedule.at("l1", l1, step, lr), math.sqrt(2 * eta_t)


def layer_drifts(
    wiring: Wiring, l1: Sequence[Scalar], temperature: Sequence[Scalar], second: Sequence[float], step: int, lr: float,
    lazy: Sequence[bool] | None = None,
) -> list[DriftAndNoise]:  # fmt: skip
    """ηα and √(2ηT) of each layer of a wiring, by the layer's own η; one drift for all where they are the same.

    ``l1``, ``temperature`` and ``second``, the squared gradients of newborns, begin with those of its first layer.
    """
    rates, lazy = wiring.layer_rates, lazy or [False] * len(wiring.layers)
    each = zip(rates.lr, rates.weight_decay, rates.frozen, lazy, l1, temperature, second, strict=False)
    own = [(*pull_and_push(alpha, heat, step, lr * f), f, decay, v, *flags) for f, decay, *flags, alpha, heat, v in each]
    if all(values == own[0] for values in own):
        return [DriftAndNoise(0, wiring.budget, *own[0])]
    if wiring.is_whole:  # one for each layer, wherever it starts: only the device knows
        return [DriftAndNoise(0, 0, *values) for values in own]
    return [DriftAndNoise(a, b, *values) for (a, b), values in zip(itertools.pairwise(wiring.bounds), own, strict=True)]


class LangevinMethod(WiringMethod):
    """A method on wirings with bound signs, whose θ are pulled by ηα and pushed by noise √(2ηT)."""

    adapter: OptimizerAdapter

    def take_rates(
        self, model: nn.Module, optimizer: optim.Optimizer, l1: Rate, noise: Noise, temperature: Rate | None, *, ages: bool = True
    ) -> None:
        """Note model, optimiser and rates, and bind the signs."""
        self.take(model, optimizer)
        self.adapter = OptimizerAdapter(optimizer, self.wirings, ages=ages, bound=True)
        names = [shape.name for shape in self.shapes]
        self.l1 = schedule.per_layer("l1", l1, names)
        self.temperature = schedule.temperatures(noise, temperature, names)
        self._rates_move = any(schedule.changes_with_step(rate) for rate in (*self.l1, *self.temperature))
        self.second_moments = [0.0] * len(names)  # of each layer: Adam's newborns start with it
        self._looks = 0  # how often rates were changed from within
        self._drifts: dict[int, tuple[Any, list[DriftAndNoise]]] = {}
        for wiring in self.wirings:
            wiring.bind_signs_()

    def drifts(self, number: int, wiring: Wiring, step: int, lr: float) -> list[DriftAndNoise]:
        """ηα and √(2ηT) of this step for a wiring; the very list of the last step if nothing in it has changed."""
        first = 0
        for before in self.wirings[:number]:
            first += len(before.layers)
        last = first + len(wiring.layers)
        own = (self.l1[first:last], self.temperature[first:last], self.second_moments[first:last])
        lazy = self.lazy_layers(wiring)
        key, known = (lr, wiring.rates, self._looks, lazy, *own), self._drifts.get(number)
        # Layers that differ begin and end where their connections do, which move with every rewiring.
        if known is None or known[0] != key or self._rates_move or len(known[1]) > 1:
            known = self._drifts[number] = (key, layer_drifts(wiring, *own, step, lr, lazy))
        return known[1]

    def lazy_layers(self, wiring: Wiring) -> list[bool] | None:
        """In which layers a step leaves alone who has no gradient; None: in none."""
        return None


class DeepR(Watching, LangevinMethod):
    """Deep rewiring of a sparsified model.

    Args:
        model: a model with sparse layers (``wb.sparsify``).
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        l1: α, the pull of every active θ towards 0: a number, one for each layer, a schedule, or ``"auto"``, by which it
            follows from ``turnover``.
        noise: g, noise of amplitude η g as in the authors' code, which is T = η g²/2: a number, or one for each layer.
        temperature: T instead of ``noise``, for noise √(2ηT): a number, one for each layer, or a schedule.
        rewire_every: deaths and births happen in every n-th step only.
        newborns: ``"share"``, the layer of each newborn is drawn in proportion to the layers' initial counts, or
            ``"uniform"``, over all dormant connections of the wiring (Algorithm 1 read literally).
        turnover: κ, with ``l1="auto"``: the share of the connections that is replaced while one moves by its own strength.
        newborn_moments: ``"layer"``, the second moment of a newborn (Adam and its kin) is its layer's, so that its first
            steps are as long as its gradient deserves; or ``"own"``, from its first gradient on, as if training began.
        births: ``"uniform"`` over the dormant connections, as in Algorithm 1; ``"gradient"``: among drawn candidates,
            those whose gradient pulls their θ up most; or ``"paths"``: in proportion to the paths of length three that
            they close (above, what differs from the paper). Steps with a choice run module by module, not fused: by gradient
            they need the layers' inputs and output gradients, along paths O(K log K) work, so ``rewire_every`` pays there.
        lazy: which connections a step judges (optimiser, ℓ1, noise, death), while all others stand still, θ and optimiser
            state included. ``"auto"``: in layers that are given sparse rows those whose input is there, in others all.
            ``"on"``: in other layers, too, only those whose gradient in this step is not exactly 0. ``"off"``: all, as in
            Algorithm 1. See above, what differs from the paper.
        candidates: with ``births="gradient"``, how many are drawn in a layer, as a multiple of its active connections.
    """

    name = "deep-r"
    title = "DEEP R"
    settings = (PRICE, NOISE, TEMPERATURE, REWIRE_EVERY, SHARE, TURNOVER, MOMENTS, BIRTHS, CANDIDATES, LAZY)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, l1: Rate | str = AUTO, noise: Noise = NOISE.default,
        temperature: Rate | None = None, rewire_every: int = 1, newborns: str = "share",
        turnover: float = TURNOVER.default, newborn_moments: str = MOMENTS.default,
        births: str = BIRTHS.default, candidates: float = CANDIDATES.default, lazy: str = LAZY.default,
    ) -> None:  # fmt: skip
        given = (rewire_every, newborns, turnover, newborn_moments, births, candidates, lazy)
        for setting, value in zip((REWIRE_EVERY, SHARE, TURNOVER, MOMENTS, BIRTHS, CANDIDATES, LAZY), given, strict=True):
            setting.check(value)
        fixed = l1 if not isinstance(l1, str) else 0.0
        if isinstance(l1, str):
            PRICE.check(l1)
        self.take_rates(model, optimizer, fixed, noise, temperature, ages=newborn_moments == "own")
        self.rewire_every, self.newborns, self.newborn_moments = rewire_every, newborns, newborn_moments
        self.births = births
        self.choose: GrowRule = Topological() if births == "paths" else SampledGradient(candidates, towards_sign=True)
        self.adapter.own.newborns_by_layer = newborn_moments == "layer"
        self.lazy, self.occurring = lazy, [Occurring(wiring) for wiring in self.wirings]
        for wiring in self.wirings:
            wiring.seen = None if lazy == "off" else {}
        if lazy == "on":
            self._require_kernel_rule()
        self.shares = self._initial_shares()
        self.turnover = Turnover(self.wirings, turnover) if l1 == AUTO else None
        self.judged: dict[int, list[float]] = {}  # by wiring, where an engine takes steps that leave no gradient behind
        if self.turnover is not None:
            self.l1 = [*self.turnover.l1]
        self.attach()
        self.steps = 0

    def wants_sources(self, step: int) -> bool:
        return self.births == "gradient" and step % self.rewire_every == 0

    def _initial_shares(self) -> list[list[float] | None]:
        """The layers' initial shares, where newborns follow them; one layer has nothing to share."""
        shared = [self.newborns != "uniform" and len(w.layers) > 1 for w in self.wirings]
        return [w.initial_counts.double().tolist() if s else None for w, s in zip(self.wirings, shared, strict=True)]

    def lazy_layers(self, wiring: Wiring) -> list[bool] | None:
        if self.lazy != "on" and not wiring.seen:
            return None
        return [self.lazy == "on" or layer in (wiring.seen or ()) for layer in range(len(wiring.layers))]

    def _require_kernel_rule(self) -> None:
        if self.adapter.kind is RuleKind.NONE:
            name, instead = type(self.optimizer).__name__, 'use SGD, Adam or AdamW, or lazy="off"'
            raise ValueError(f"optimizer (={name}) moves all connections itself, also those that a lazy step leaves alone: {instead}")

    def _prepare_lazy(self, number: int, wiring: Wiring, lazy: Sequence[bool], step: int, clamp: bool) -> None:
        """What comes before a step in which some layers leave those alone who have no gradient."""
        self._require_kernel_rule()
        uphill = bool(self.adapter.group(wiring).get("maximize"))
        self.occurring[number].before_step_(step, rewires=not clamp, uphill=uphill)
        grad = wiring.theta.grad
        assert grad is not None
        for is_lazy, (first, last) in zip(lazy, itertools.pairwise(wiring.bounds), strict=True):
            if is_lazy and self.adapter.born:  # who stands still grows no older
                self.adapter.born[number][first:last] += grad[first:last] == 0

    def step_wiring(self, number: int, wiring: Wiring, step: int) -> tuple[list[int], list[int]]:
        theta, adapter, shares = wiring.theta, self.adapter, self.shares[number]
        group, open_columns = adapter.group(wiring), None
        drifts, clamp = self.drifts(number, wiring, step, adapter.lr(group)), step % self.rewire_every != 0
        if (lazy := self.lazy_layers(wiring)) is not None:
            self._prepare_lazy(number, wiring, lazy, step, clamp)
            open_columns = self.occurring[number].open_columns()
        if self.births != "uniform" and not clamp:
            return self._step_with_choice(number, wiring, drifts, step, open_columns)
        if wiring.constrained or wiring.has_frozen:  # newborns are drawn among the positions that are allowed
            born, dead = [0] * len(wiring.layers), self.update(number, wiring, drifts, step, clamp=clamp)
            if dead.numel():
                born, _ = wiring.rewire_(dead, adapter.carried(number, group), step, shares, open_columns)
            return wiring.layer_active, born
        rule, state = adapter.rule(number, group), adapter.state(number, group)
        before, carried = wiring.changing(), adapter.carried(number, group)
        take_step = ops.backend_of(theta).step_
        places = {} if open_columns is None else {"open_columns": open_columns}
        counts = take_step(wiring, theta, theta.grad, rule, state, drifts, carried, step, shares, clamp=clamp, **places)
        active = listed(counts.active) if wiring.is_whole else ops.numbers(counts.active)
        return active, wiring.changed(before, counts.born, counts.died)[0]

    def _step_with_choice(
        self, number: int, wiring: Wiring, drifts: Sequence[DriftAndNoise], step: int, open_columns: ops.OpenColumns | None
    ) -> tuple[list[int], list[int]]:
        if self.births == "paths" and open_columns is not None:
            raise ValueError('births (=\'paths\') does not know which columns sparse rows have: use "uniform", "gradient", or lazy="off"')
        sources, group = self.sources(wiring) if self.wants_sources(step) else {}, self.adapter.group(wiring)
        dead = self.update(number, wiring, drifts, step, clamp=False)
        if not dead.numel():
            return wiring.layer_active, [0] * len(wiring.layers)
        positions, alive = wiring.positions(), wiring.theta.detach() >= 0
        survivors, died = positions[alive], positions[dead]
        counts = births_of_layers(wiring, survivors, died, step, self.shares[number])
        uphill = bool(group.get("maximize"))
        newborns = self.choose(Growth(wiring, survivors, died, counts, sources, step, uphill, open_columns))
        born, _ = wiring.replace_(dead, newborns, self.adapter.carried(number, group), survivors=survivors)
        return wiring.layer_active, born

    def train(self, step: int) -> tuple[list[int], list[int]]:
        active, rewired = super().train(step)
        self.note(step, rewired)
        self._forget_present()
        return active, rewired

    def _forget_present(self) -> None:
        for occurring in self.occurring:
            occurring.forget_present()

    def forget_gradients(self) -> None:
        super().forget_gradients()
        self._forget_present()

    def _touched(self, wiring: Wiring) -> list[float] | None:
        """The share of each layer's connections that the last step judged; None: all."""
        lazy, grad = self.lazy_layers(wiring), wiring.theta.grad
        if lazy is None or grad is None:
            return self.judged.get(id(wiring))
        parts = zip(lazy, grad.split(wiring.layer_places), strict=True)
        return [int(part.count_nonzero()) / max(1, part.numel()) if is_lazy else 1.0 for is_lazy, part in parts]

    def next_look(self, step: int) -> float:
        """The step after which rates are adjusted next; infinity: never."""
        by_layer = self.newborn_moments == "layer" and self.adapter.own.has_ages
        return next_look(step, self.rewire_every) if self.turnover is not None or by_layer else math.inf

    def note(self, step: int, newborns: Sequence[int]) -> None:
        """Steps up to this one, with so many newborns in each layer, have been taken."""
        if self.turnover is not None:
            self.turnover.add(newborns)
        elif not self.adapter.own.has_ages:
            return  # nothing to look at
        if step < self.next_look(step - 1):
            return
        if self.turnover is not None:
            for price in self.turnover.prices:
                price.look(step, self.adapter.lr(self.adapter.group(price.wiring)), self._touched(price.wiring))
        if self.newborn_moments == "layer":
            self.second_moments = [v for number in range(len(self.wirings)) for v in self.adapter.second_moments(number)]
        self._looks += 1

    def state_dict(self) -> dict[str, Any]:
        moments = {"second_moments": list(self.second_moments)} if self.newborn_moments == "layer" else {}
        looked = {} if self.turnover is None else {"turnover": self.turnover.state_dict()}
        return {**super().state_dict(), **moments, **looked, **states(self.occurring)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_states(self.occurring, state)
        for occurring, seen in zip(self.occurring, state.get("seen", ()), strict=False):
            occurring.load(seen)
        if self.turnover is not None and "turnover" in state:
            self.turnover.load_state_dict(state["turnover"])
        super().load_state_dict(state)
        self.second_moments = [float(v) for v in state.get("second_moments") or self.second_moments]
        self._looks += 1
        self.shares = self._initial_shares()  # of the wirings that were loaded, which may have started otherwise
