"""``sparsify``: a torch model with its large matrices made sparse layers in one budget; ``to_dense``: the way back."""

import copy
import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from wirebound.nn.attention import leave_fast_paths, restore_fast_paths
from wirebound.nn.candidates import Pattern, account_for, find_candidates
from wirebound.nn.masked import unmask_parameters
from wirebound.nn.options import Slot
from wirebound.nn.sparse_layer import Matrix, wirings
from wirebound.nn.stack import with_runs, without_runs
from wirebound.ops import philox
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Allocation, Constraints, LayerShape, Wiring, allocate
from wirebound.wiring.budget import whole

_log = logging.getLogger("wirebound")
SCOPES = ("global", "layer")
KEEPS = (None, "largest", "random")
_MOST_DENSE = 0.5  # share of the weights that may stay dense without a warning
_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)


def sparsify(
    model: nn.Module, connectivity: float | None = None, budget: int | None = None, *, scope: str = "global",
    allocation: Allocation = "paper", exclude: Pattern | Iterable[Pattern] = (),
    include: Pattern | Iterable[Pattern] | None = None, keep: str | None = None, init: str = "dense-fan-in",
    gain: float = 1.0, constraints: Constraints | None = None, seed: int = 0, device: torch.device | str | None = None,
) -> nn.Module:
    """Replace the large matrices of ``model`` by sparse ones, in place, and return it.

    Linear layers, convolutions, recurrent layers and cells, and attention become their sparse twins. The logger
    ``"wirebound"`` and ``model.sparsified`` say what became sparse and what stayed dense; it is a warning if more than half
    of the weights stayed dense and neither ``include`` nor ``exclude`` said so.

    Args:
        model: any module, nested or with shared parts. Under ``torch.device("meta")`` its dense weights never exist;
            what stays dense is then made on ``device`` by each module's own ``reset_parameters``.
        connectivity: share of all possible connections of these layers that exist, in (0, 1]; or
        budget: their number, K.
        scope: ``"global"``, one budget between whose layers connections may move, or ``"layer"``, each keeps its own.
        allocation: ``"uniform"``, ``"erdos-renyi"``, ``"equal"``, ``"paper"``, or a value for each layer
            (``wiring/budget.py``): how the budget is shared out at the start.
        exclude: layers that stay dense: names, patterns such as ``"head.*"``, types, or functions of (name, module). A
            name or a type stands for a module with all that is in it, the name of a weight for its layer.
        include: if given, only these become sparse. It may also name modules or parameters that have no sparse layer,
            such as ``"embedding.weight"`` or ``nn.Embedding``: those get masked dense storage (``nn/masked.py``).
        keep: ``None`` draws new connections and weights; ``"largest"`` or ``"random"`` keeps entries of the dense weights.
        init, gain: scale of newly drawn weights (``wiring/draw.py``).
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
    capacities = None
    if constraints is not None:
        constraints.require_names(shapes)
        capacities = [constraints.capacity(shape) for shape in shapes]
    sizes = [(s.n_out, s.n_in) for s in shapes]
    counts = allocate([s.name for s in shapes], sizes, allocation, connectivity, budget, capacities)
    groups = [list(range(len(shapes)))] if scope == "global" else [[i] for i in range(len(shapes))]
    others = len(wirings(model))  # of a model that is sparse in part: new wirings draw other numbers
    slots: list[Slot] = []
    frozen: list[str] = []
    for index, group in enumerate(groups, others):
        members = [(matrices[i], shapes[i], counts[i]) for i in group]
        limits = None if constraints is None else constraints.for_layers([shapes[i] for i in group])
        wiring = _wire(members, keep, device, init, gain, seed=seed, index=index, constraints=limits)
        frozen += _freeze(wiring, members)
        slots += [(wiring, layer_id) for layer_id in range(len(group))]
    account, dense_share = account_for(model, choice, frozen, sum(counts))
    replacement: dict[int, nn.Module] = {}
    for candidate in candidates:
        mine, slots = slots[: len(candidate.matrices)], slots[len(candidate.matrices) :]
        replacement[id(candidate.module)] = candidate.kind.from_dense(candidate.module, mine)
    model = replace_modules(model, replacement)
    _materialise(model, torch.device("cpu" if device is None else device))
    leave_fast_paths(model)
    model = with_runs(model)
    model.__dict__["sparsified"] = account
    _log.info("sparsify: %s", account)
    if dense_share > _MOST_DENSE:
        advice = "Name modules in include= to have them masked too, or in exclude= if they are to stay dense"
        warnings.warn(f"{dense_share:.0%} of the weights stayed dense: {account}. {advice}", stacklevel=2)
    return model


def _freeze(wiring: Wiring, members: list[tuple[Matrix, LayerShape, int]]) -> list[str]:
    """Weights that were not trained are not trained now, if they are all that a wiring has; their names."""
    frozen = [shape.name for matrix, shape, _ in members if not matrix.weight.requires_grad]
    if len(frozen) == len(members):
        wiring.theta.requires_grad_(False)
        return frozen
    if frozen:
        what = f"the weights of {', '.join(map(repr, frozen))} had requires_grad=False, but share a budget with others and"
        advice = "exclude them, or give each layer a budget of its own by scope='layer'"
        warnings.warn(f"{what} are trained with them from now on: {advice}", stacklevel=3)
    return []


def _wire(
    members: list[tuple[Matrix, LayerShape, int]], keep: str | None, device: torch.device | str | None, init: str,
    gain: float, **own: Any,
) -> Wiring:
    """The wiring of one budget; ``own`` are its seed, index and constraints."""
    first = members[0][0].weight
    for matrix, shape, _ in members:
        if matrix.weight.dtype is not first.dtype:
            given = f"{shape.name!r} has {matrix.weight.dtype}, {members[0][1].name!r} has {first.dtype}"
            raise ValueError(f"the layers of one budget must have one dtype: {given}")
    on_meta = any(matrix.weight.is_meta for matrix, _, _ in members)
    shapes, counts = [shape for _, shape, _ in members], [count for _, _, count in members]
    if keep is None:
        target = torch.device("cpu" if device is None else device) if on_meta else first.device
        return Wiring(shapes, counts, init=init, gain=gain, device=target, dtype=first.dtype, **own)
    if on_meta:
        raise ValueError(f"keep (={keep!r}) needs the dense weights of the model, but they are on the meta device")
    geometry = Geometry(tuple(s.n_out for s in shapes), tuple(s.n_in for s in shapes))
    positions, weights = [], []
    for layer_id, (matrix, _, count) in enumerate(members):
        dense = matrix.arrange(matrix.weight.detach()).t().reshape(-1)  # input-major, as positions count
        if keep == "largest":
            chosen = dense.abs().topk(count).indices.sort().values
        else:
            stream = stream_of(Stream.POSITIONS, own["index"], layer=layer_id)
            chosen = philox.sample_sorted(dense.numel(), count, own["seed"], stream, 0, dense.device)
        positions.append(geometry.position_start[layer_id] + chosen)
        weights.append(dense[chosen])
    return Wiring.from_connections(shapes, torch.cat(positions), torch.cat(weights), **own)


def _materialise(model: nn.Module, device: torch.device) -> None:
    """Make what is still on the meta device: biases are there already, norms and embeddings are not."""
    for name, module in model.named_modules():
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not any(t.is_meta for t in tensors):
            continue
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        if reset is None:
            what = f"module {name!r} (={type(module).__name__}) is on meta and has no reset_parameters()"
            raise ValueError(f"{what}: build it on a real device")
        module.to_empty(device=device, recurse=False)
        reset()


def to_dense(model: nn.Module) -> nn.Module:
    """A copy of the model in which every sparse layer is its torch twin; it allocates every matrix in full."""
    model = restore_fast_paths(unmask_parameters(without_runs(copy.deepcopy(model))))
    model.__dict__.pop("sparsified", None)
    return replace_modules(model, _twins(model))


def _twins(module: nn.Module) -> dict[int, nn.Module]:
    if (make := getattr(module, "dense_twin", None)) is not None:
        return {id(module): make().train(module.training)}
    found: dict[int, nn.Module] = {}
    for child in module.children():
        found.update(_twins(child))
    return found


def replace_modules(model: nn.Module, replacement: Mapping[int, nn.Module]) -> nn.Module:
    """The model with modules replaced, with their hooks, wherever it holds them, in place; ``replacement`` goes by ``id``."""
    for module in list(model.modules()):
        if id(module) in replacement:
            for hooks in _HOOKS:  # the very dictionaries: their handles still work
                replacement[id(module)].__dict__[hooks] = module.__dict__[hooks]
    if id(model) in replacement:
        return replacement[id(model)]
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and id(child) in replacement:
                module._modules[name] = replacement[id(child)]
    return model
