"""soft-DEEP R (Bellec et al. 2018, Algorithm 2): dormant connections drift too, and nobody bounds how many are active.

    for all active connections k (θ_k >= 0):
        θ_k ← θ_k − η ∂E/∂θ_k − η α + √(2 η T) ν_k
        if θ_k < 0: k becomes dormant
    for all dormant connections k (θ_k < 0):
        θ_k ← max(θ_k + √(2 η T) ν_k, θ_min)
        if θ_k >= 0: k becomes active

η is the optimiser's current learning rate, α ``l1``, T ``temperature``; − η ∂E/∂θ is the optimiser's own step, as in
``DeepR``. The model's own parameter is w_k = s_k max(θ_k, 0) with the constant sign that a wiring gives this position.

Who is active and who is dormant is settled at the beginning of a step, as in the paper's equation for Δθ, so that
each connection moves once; the box read literally would push one that has just died a second time. What falls below
θ_min stops there, whichever it was. Differs from the paper in that Adam corrects its bias by the time for which a
connection has been active, as ``DeepR`` does. Storage is dense by nature: every possible connection has a θ; its sign and
whether it is active are kept as numbers: arithmetic on whole rows is ten times quicker than a choice for each element.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import ops, schedule
from wirebound.methods.declaration import L1, NOISE, TEMPERATURE, RunLength, Setting
from wirebound.methods.deep_r import pull_and_push
from wirebound.methods.matrices import Matrix, MatrixMethod
from wirebound.methods.method import StepInfo, load_rows, require_finite
from wirebound.methods.soft_rules import theta_min_for, theta_min_from_l1
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.optim.adapter import OptimizerAdapter
from wirebound.schedule import Noise, Rate
from wirebound.wiring import Allocation, LayerShape, allocate
from wirebound.wiring.budget import read_allocation
from wirebound.wiring.draw import draw_positions, draw_theta

_EXACT = 1 << 24  # the whole numbers that a float32 can count to
_PIECE = 1 << 15  # numbers of a row that are moved at a time
ThetaMin = float | Sequence[float] | Mapping[str, float]
THETA_MIN = Setting("theta_min", "float | None", None, "where dormant θ stop, < 0 (default: by connectivity)", below=0)


def drift_(
    theta: Tensor, active: Tensor, sign: Tensor, weight: Tensor, pull: float, push: float, nu: Tensor | None, theta_min: float
) -> None:
    """Algorithm 2 after the optimiser, in place; ``weight`` is what that has made of s·θ, 0 where dormant."""
    theta.clamp_(max=0).addcmul_(sign, weight)  # s·w where active, θ where dormant
    if pull:
        theta.sub_(active, alpha=pull)
    if nu is not None:
        theta.add_(nu, alpha=push)
    theta.clamp_(min=theta_min)


def _pieces(row: Tensor) -> list[slice]:
    """Parts of a row for which all that is kept fits the second cache; on a device the whole row."""
    size = row.numel() if ops.whole_wirings(row) else _PIECE
    return [slice(first, first + size) for first in range(0, row.numel(), max(1, size))]


def _count(mask: Tensor) -> Any:
    """Ones in a mask of floats: in pieces that a float32 counts exactly; on a device a scalar that stays there."""
    if ops.whole_wirings(mask):
        return torch.count_nonzero(mask)
    if mask.element_size() < 4:  # too short to count with
        return int(torch.count_nonzero(mask))
    return sum(int(piece.sum()) for piece in mask.split(_EXACT))


class SoftDeepR(MatrixMethod):
    """soft-DEEP R of a plain model: connections come and go by themselves, without a bound.

    Every weight matrix is started again, as ``wb.sparsify`` starts it with this connectivity and seed.

    Args:
        model: a plain model, not sparsified.
        optimizer: any torch optimiser that keeps state by element and holds the model's parameters.
        l1: α, the pull of every active θ towards 0. A number, one for each matrix, or a schedule.
        noise: g, noise of amplitude η g, which is T = η g²/2: a number, or one for each matrix; the paper's is α/3.
        temperature: T instead of ``noise``, for noise √(2ηT): a number, one for each matrix, or a schedule.
        theta_min: where dormant θ stop, < 0: a number, or one for each matrix; by default what the paper's rule gives
            for ``connectivity`` as the lower bound (with the rates of the first step), or −3α without noise.
        connectivity, budget, allocation: which are active at the start, as for ``wb.sparsify``; by default 1 %.
        init, gain: scale of the first weights (``wiring/draw.py``); the gain may be one for each matrix.
        exclude: matrices that stay dense, by patterns of their parameters' names; biases and the like always do.
        seed: decides everything that is drawn.
    """

    name = "soft-deep-r"
    title = "soft-DEEP R"
    settings = (L1.with_default(1e-5), NOISE.with_default(1e-5 / 3), TEMPERATURE, THETA_MIN)
    sized_by = ("connectivity", "budget", "theta_min")
    sized_beside = ("theta_min",)
    takes = ("connectivity", "budget", "allocation", "init", "gain", "exclude", "seed")
    counts = "highest"
    zeros_learn = False  # dormant θ move by noise alone
    adapter: OptimizerAdapter

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        found = super().arguments(settings, length)
        if isinstance(found.get("allocation"), str):
            found["allocation"] = read_allocation(found["allocation"])
        return found

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, l1: Rate = 1e-5, noise: Noise = 1e-5 / 3,
        temperature: Rate | None = None, theta_min: ThetaMin | None = None, connectivity: float | None = None,
        budget: int | None = None, allocation: Allocation = "paper", init: str = "dense-fan-in",
        gain: float | Sequence[float] = 1.0, exclude: str | Iterable[str] = (), seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(model, optimizer, exclude)
        names = [shape.name for shape in self.shapes]
        self.l1 = schedule.per_layer("l1", l1, names)
        self.temperature = schedule.temperatures(noise, temperature, names)
        self.seed = seed
        extents = [(s.n_out, s.n_in) for s in self.shapes]
        self.geometry = Geometry(*map(tuple, zip(*extents, strict=True)))
        if connectivity is None and budget is None and isinstance(allocation, str):
            connectivity = 0.01
        counts = allocate(names, extents, allocation, connectivity, budget)
        self.theta_min = self._floors(theta_min, sum(counts) / self.geometry.possible, names)
        self.adapter = OptimizerAdapter(optimizer, self.matrices, bound=True)
        self.theta = first_theta(self.matrices, self.geometry, counts, self.theta_min, seed, init, gain)
        self._before = [torch.empty_like(theta) for theta in self.theta]
        self._read_theta()
        self.attach()

    def _floors(self, given: ThetaMin | None, p_min: float, names: Sequence[str]) -> list[float]:
        """θ_min of each matrix: as given, else by the paper's rule."""
        if given is None:
            return [self._floor(number, p_min) for number in range(len(names))]
        if isinstance(given, Mapping):
            negated: Rate = {name: -value for name, value in given.items()}
        else:
            negated = [-value for value in given] if isinstance(given, Sequence) else -given
        floors = [-float(height) for height in schedule.per_layer("-theta_min", negated, names) if not callable(height)]
        for name, floor in zip(names, floors, strict=True):
            if not floor < 0:
                raise ValueError(f"theta_min of {name!r} (={floor}) must be < 0")
        return floors

    def _floor(self, number: int, p_min: float) -> float:
        lr = self.lr(self.matrices[number])
        l1 = schedule.at("l1", self.l1[number], 1, lr)
        temperature = schedule.at("temperature", self.temperature[number], 1, lr)
        if not l1 > 0:
            raise ValueError(f"l1 of {self.shapes[number].name!r} (={l1}) must be > 0 to find theta_min: give theta_min")
        return theta_min_for(p_min, temperature, l1) if temperature > 0 and p_min < 1 else theta_min_from_l1(l1)

    @torch.no_grad()
    def _read_theta(self) -> None:
        self.sign = constant_signs(self.matrices, self.geometry, self.seed)
        self.active = [(theta >= 0).to(theta.dtype) for theta in self.theta]
        self._counts = [_count(active) for active in self.active]
        for matrix, theta, sign in zip(self.matrices, self.theta, self.sign, strict=True):
            torch.clamp(theta, min=0, out=matrix.weight).mul_(sign)

    def take_step(self) -> StepInfo:
        require_finite(self.matrices, self.steps + 1)
        self.adapter.require_rates()
        self.steps += 1
        for matrix, active in zip(self.matrices, self.active, strict=True):
            if matrix.grad is not None:
                matrix.grad.mul_(active)
        self.adapter.step_torch(self.steps)
        rewired = [self._step_matrix(number) for number in range(len(self.matrices))]
        return self.report(self.layer_active(), rewired)

    @torch.no_grad()
    def _step_matrix(self, number: int) -> int:
        """Move one matrix after torch has stepped the rest; how many connections became active."""
        matrix, theta, sign, step = self.matrices[number], self.theta[number], self.sign[number], self.steps
        if matrix.grad is None:  # not part of this loss: as torch does, leave it alone
            return 0
        weight, group = matrix.weight, self.adapter.group(matrix)
        rule, state = self.adapter.rule(number, group), self.adapter.state(number, group)
        rows: dict[str, Any] = {name: t.view(-1) for name, t in vars(state).items() if isinstance(t, Tensor)}
        # Dormant weights are 0 with no gradient and no moments: the optimiser leaves them where they are.
        state, update = replace(state, **rows), ops.backend_of(weight).update_
        update(weight, matrix.grad, rule, state, (), self.seed, 0, step, sign_bound=False, clamp=False)
        pull, push = pull_and_push(self.l1[number], self.temperature[number], step, float(group["lr"]))
        nu, stream = None, stream_of(Stream.NOISE, 0, layer=number)
        if push:
            normals = ops.backend_on(theta.device).normals
            nu = normals(self.seed, stream, step, theta.numel(), theta.device).to(theta.dtype)
        before, active = self.active[number], self._before[number]
        self.active[number], self._before[number] = active, before
        remembered = [(moved.view(-1), clean) for moved, clean in self.adapter.carried(number, group)]
        count = stayed = 0
        for piece in _pieces(theta):
            own, was, now = theta[piece], before[piece], active[piece]
            drift_(own, was, sign[piece], weight[piece], pull, push, None if nu is None else nu[piece], self.theta_min[number])
            torch.ge(own, 0, out=now)
            torch.clamp(own, min=0, out=weight[piece]).mul_(sign[piece])
            if remembered and ops.whole_wirings(own):  # which are changed, only the device knows
                changed = now != was
                for moved, clean in remembered:
                    moved[piece].masked_fill_(changed, clean)
            elif remembered:
                changed = torch.nonzero(now - was).view(-1)
                for moved, clean in remembered:
                    moved[piece][changed] = clean
            count += _count(now)
            stayed += _count(was.mul_(now))
        self._counts[number] = count
        return count - stayed

    def layer_active(self) -> list[int]:
        return list(self._counts)

    def masks(self) -> list[Tensor]:
        return self.active

    def holds(self) -> list[tuple[str, list[Tensor], str]]:
        return [
            ("θ of all possible connections", self.theta, "one number for each, active or dormant: dense by nature"),
            ("signs of all possible connections", self.sign, "one number for each"),
            ("which are active", self.active + self._before, "two numbers for each: now, and before the step"),
        ]

    def state_dict(self) -> dict[str, Any]:
        own = {"seed": self.seed, "theta_min": list(self.theta_min), "theta": [theta.clone() for theta in self.theta]}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        load_rows("theta", self.theta, state["theta"])
        self.seed, self.theta_min = int(state["seed"]), [float(floor) for floor in state["theta_min"]]
        self._read_theta()


def constant_signs(matrices: Sequence[Matrix], geometry: Geometry, seed: int) -> list[Tensor]:
    """The constant sign of every possible connection, ±1, in the order of the parameters."""
    signs = []
    for matrix, start in zip(matrices, geometry.position_start, strict=False):
        weight = matrix.weight
        positions = start + torch.arange(matrix.budget, device=weight.device)
        negative = ops.backend_on(weight.device).negative_signs(positions, seed, 0)
        signs.append(_by_output(1 - 2 * negative.to(weight.dtype), matrix.shape))
    return signs


def first_theta(
    matrices: Sequence[Matrix], geometry: Geometry, counts: Sequence[int], theta_min: Sequence[float], seed: int, init: str,
    gain: float | Sequence[float],
) -> list[Tensor]:  # fmt: skip
    """The first θ of each matrix: |N(0, 1)|/√n_in where active, uniform in [θ_min, 0) where dormant."""
    device, thetas, first = matrices[0].weight.device, [], 0
    positions = draw_positions(geometry, counts, seed, 0, device)
    active = draw_theta(geometry, counts, seed, 0, init, gain, device, matrices[0].weight.dtype)
    for number, (matrix, start) in enumerate(zip(matrices, geometry.position_start, strict=False)):
        # A uniform number is the share of the normal law below ν; kept above 0, which would be active.
        nu = ops.backend_on(device).normals(seed, stream_of(Stream.OTHER, 0, layer=number), 0, matrix.budget, device)
        share = torch.special.ndtr(nu.double()).clamp_(min=2.0**-24)
        theta = (share * theta_min[number]).to(matrix.weight.dtype)
        last = first + counts[number]
        theta[positions[first:last] - start] = active[first:last].to(theta)
        thetas.append(_by_output(theta, matrix.shape))
        first = last
    return thetas


def _by_output(row: Tensor, shape: LayerShape) -> Tensor:
    """From the order of positions, down the columns, to that of a parameter, along the rows."""
    return row.view(shape.n_in, shape.n_out).t().reshape(-1).contiguous()
