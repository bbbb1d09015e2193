"""``sparsify``: any torch model with its large matrices replaced by sparse layers inside one budget."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from wirebound.nn.account import MOST_DENSE, Account, stayed_dense
from wirebound.nn.attention import leave_fast_paths
from wirebound.nn.candidates import Choice, Pattern, find_candidates
from wirebound.nn.kinds import Matrix
from wirebound.nn.sparse_layer import replace_modules, wirings
from wirebound.nn.stack import with_runs
from wirebound.nn.twins import Slot
from wirebound.ops import philox
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Allocation, Constraints, LayerShape, Wiring, allocate
from wirebound.wiring.budget import whole

_log = logging.getLogger("wirebound")
SCOPES = ("global", "layer")
KEEPS = (None, "largest", "random")


def sparsify(
    model: nn.Module,
    connectivity: float | None = None,
    budget: int | None = None,
    *,
    scope: str = "global",
    allocation: Allocation = "erdos-renyi",
    exclude: Pattern | Iterable[Pattern] = (),
    include: Pattern | Iterable[Pattern] | None = None,
    keep: str | None = None,
    init: str = "dense-fan-in",
    gain: float = 1.0,
    constraints: Constraints | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> nn.Module:
    """Replace the large matrices of ``model`` by sparse ones, in place, and return it.

    Linear layers, convolutions, recurrent layers and cells, and attention become their sparse twins; all else stays as it
    is, unless ``include`` names it. What became sparse and what stayed dense is said in one line, by the logger
    ``"wirebound"`` and in ``model.sparsified``; it is a warning if more than half of the weights stayed dense and
    neither ``include`` nor ``exclude`` said so.

    Args:
        model: any module, nested or with shared parts. Under ``torch.device("meta")`` its dense weights never exist;
            what stays dense is then made on ``device`` by each module's own ``reset_parameters``.
        connectivity: share of all possible connections of these layers that exist, in (0, 1]; or
        budget: their number, K.
        scope: ``"global"``, one budget for all layers, between which connections may move; ``"layer"``, each layer
            keeps its own.
        allocation: how the budget is shared out at the start: ``"uniform"``, ``"erdos-renyi"``, ``"equal"``,
            ``"paper"``, or a value for each layer (``wiring/budget.py``).
        exclude: layers that stay dense: names, patterns such as ``"head.*"``, types, or functions of (name, module). A
            name or a type stands for a module with all that is in it, the name of a weight for its layer.
        include: if given, only these become sparse. It may also name modules or parameters that have no sparse layer,
            such as ``"embedding.weight"`` or ``nn.Embedding``: those get masked dense storage (``nn/masked.py``).
        keep: ``None`` draws connections and weights anew; ``"largest"`` or ``"random"`` keeps entries of the dense
            weights that the model has.
        init, gain: scale of newly drawn weights (``wiring/init.py``).
        constraints: caps on the fan-in and fan-out of neurons and signs that belong to them, by layer name or for all.
        seed: decides everything that is drawn.
        device: where to put a model that is on ``meta``.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope (={scope!r}) must be one of {SCOPES}")
    if keep not in KEEPS:
        raise ValueError(f"keep (={keep!r}) must be one of {KEEPS}")
    seed = whole("seed", seed)
    choice = find_candidates(model, exclude, include)
    candidates = choice.candidates
    matrices = [matrix for candidate in candidates for matrix in candidate.matrices]
    shapes = [shape for candidate in candidates for shape in candidate.shapes]
    counts = allocate(
        [s.name for s in shapes],
        [(s.n_out, s.n_in) for s in shapes],
        allocation,
        connectivity,
        budget,
        capacities=None if constraints is None else _capacities(constraints, shapes),
    )
    groups = [list(range(len(shapes)))] if scope == "global" else [[i] for i in range(len(shapes))]
    others = len(wirings(model))  # of a model that is sparse in part: new wirings draw other numbers
    slots: list[Slot] = []
    frozen: list[str] = []
    for index, group in enumerate(groups, others):
        members = [(matrices[i], shapes[i], counts[i]) for i in group]
        limits = None if constraints is None else constraints.for_layers([shapes[i] for i in group])
        wiring = _wire(members, keep, init, gain, limits, seed, index, device)
        frozen += _freeze(wiring, members)
        slots += [(wiring, part) for part in range(len(group))]
    account = _account(model, choice, frozen, sum(counts))
    replacement: dict[int, nn.Module] = {}
    for candidate in candidates:
        mine, slots = slots[: len(candidate.matrices)], slots[len(candidate.matrices) :]
        replacement[id(candidate.module)] = candidate.kind.twin(candidate.module, mine)
    model = replace_modules(model, replacement)
    _materialise(model, torch.device("cpu" if device is None else device))
    leave_fast_paths(model)
    model = with_runs(model)
    _say(model, account)
    return model


def _account(model: nn.Module, choice: Choice, frozen: list[str], connections: int) -> Account:
    taken = [
        (candidate, candidate.module.get_parameter(name))
        for candidate in choice.candidates
        for name in candidate.kind.parameters(candidate.module)
    ]
    return Account(
        matrices=sum(len(candidate.matrices) for candidate in choice.candidates),
        taken=sum(weight.numel() for _, weight in taken),
        connections=connections,
        masked=tuple(shape.name for c in choice.candidates if c.kind.masked for shape in c.shapes),
        frozen=tuple(frozen),
        stayed=stayed_dense(model, {id(weight) for _, weight in taken}, choice.excluded, choice.whys),
    )


def _say(model: nn.Module, account: Account) -> None:
    model.__dict__["sparsified"] = str(account)
    _log.info("sparsify: %s", account)
    if account.dense_share > MOST_DENSE:
        warnings.warn(
            f"{account.dense_share:.0%} of the weights stayed dense: {account}. Name modules in include= to have them "
            "masked too, or in exclude= if they are to stay dense",
            stacklevel=3,
        )


def _freeze(wiring: Wiring, members: list[tuple[Matrix, LayerShape, int]]) -> list[str]:
    """Weights that were not trained are not trained now, if they are all that a wiring has; their names."""
    frozen = [shape.name for matrix, shape, _ in members if not matrix.weight.requires_grad]
    if len(frozen) == len(members):
        wiring.theta.requires_grad_(False)
        return frozen
    if frozen:
        warnings.warn(
            f"the weights of {', '.join(map(repr, frozen))} had requires_grad=False, but share a budget with others and "
            "are trained with them from now on: exclude them, or give each layer a budget of its own by scope='layer'",
            stacklevel=3,
        )
    return []


def _wire(
    members: list[tuple[Matrix, LayerShape, int]],
    keep: str | None,
    init: str,
    gain: float,
    constraints: Constraints | None,
    seed: int,
    index: int,
    device: torch.device | str | None,
) -> Wiring:
    first = members[0][0].weight
    for matrix, shape, _ in members:
        if matrix.weight.dtype is not first.dtype:
            raise ValueError(
                f"the layers of one budget must have one dtype: {shape.name!r} has {matrix.weight.dtype}, "
                f"{members[0][1].name!r} has {first.dtype}"
            )
    on_meta = any(matrix.weight.is_meta for matrix, _, _ in members)
    shapes, counts = [shape for _, shape, _ in members], [count for _, _, count in members]
    if keep is None:
        target = torch.device("cpu" if device is None else device) if on_meta else first.device
        return Wiring(
            shapes,
            counts,
            seed=seed,
            index=index,
            init=init,
            gain=gain,
            constraints=constraints,
            device=target,
            dtype=first.dtype,
        )
    if on_meta:
        raise ValueError(f"keep (={keep!r}) needs the dense weights of the model, but they are on the meta device")
    geometry = Geometry(tuple(s.n_out for s in shapes), tuple(s.n_in for s in shapes))
    positions, weights = [], []
    for part, (matrix, _, count) in enumerate(members):
        dense = matrix.arrange(matrix.weight.detach()).t().reshape(-1)  # input-major, as positions count
        chosen = _kept(dense, count, keep, seed, index, part)
        positions.append(geometry.position_start[part] + chosen)
        weights.append(dense[chosen])
    return Wiring.from_connections(
        shapes, torch.cat(positions), torch.cat(weights), seed=seed, index=index, constraints=constraints
    )


def _capacities(constraints: Constraints, shapes: list[LayerShape]) -> list[int]:
    """What the layers have room for; refuses names of layers that do not exist."""
    known = {shape.name for shape in shapes}
    for setting in ("max_fan_in", "max_fan_out", "dale"):
        value = getattr(constraints, setting)
        unknown = sorted(set(value) - known) if isinstance(value, Mapping) else []
        if unknown:
            raise ValueError(f"{setting} names layer {unknown[0]!r}, which must be one of {', '.join(sorted(known))}")
    return [constraints.capacity(shape) for shape in shapes]


def _kept(dense: Tensor, count: int, keep: str, seed: int, index: int, part: int) -> Tensor:
    if keep == "largest":
        return dense.abs().topk(count).indices.sort().values
    stream = stream_of(Stream.POSITIONS, index, layer=part)
    return philox.sample_sorted(dense.numel(), count, seed, stream, 0, dense.device)


def _materialise(model: nn.Module, device: torch.device) -> None:
    """Make what is still on the meta device: biases are there already, norms and embeddings are not."""
    for name, module in model.named_modules():
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not any(t.is_meta for t in tensors):
            continue
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        if reset is None:
            raise ValueError(
                f"module {name!r} (={type(module).__name__}) is on the meta device and has no reset_parameters(): "
                "build it on a real device"
            )
        module.to_empty(device=device, recurse=False)
        reset()
