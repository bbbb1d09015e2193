"""``sparsify``: any torch model with its large matrices replaced by sparse layers inside one budget."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear
from wirebound.nn.part import replace_modules
from wirebound.nn.stack import with_runs
from wirebound.ops import philox
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import Stream, stream_of
from wirebound.wiring import Allocation, LayerShape, Wiring, allocate

SCOPES = ("global", "layer")
KEEPS = (None, "largest", "random")
Pattern = str | type[nn.Module] | Callable[[str, nn.Module], bool]


@dataclass
class _Candidate:
    """A layer that becomes sparse, with all the names under which the model holds it."""

    names: list[str]
    module: nn.Linear

    @property
    def shape(self) -> LayerShape:
        return LayerShape(self.names[0], self.module.out_features, self.module.in_features)


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
    seed: int = 0,
    device: torch.device | str | None = None,
) -> nn.Module:
    """Replace the linear layers of ``model`` by sparse ones, in place, and return it.

    Args:
        model: any module, nested or with shared parts. Under ``torch.device("meta")`` its dense weights never exist;
            what stays dense is then made on ``device`` by each module's own ``reset_parameters``.
        connectivity: share of all possible connections of these layers that exist, in (0, 1]; or
        budget: their number, K.
        scope: ``"global"``, one budget for all layers, between which connections may move; ``"layer"``, each layer
            keeps its own.
        allocation: how the budget is shared out at the start: ``"uniform"``, ``"erdos-renyi"``, ``"equal"``,
            ``"paper"``, or a value for each layer (``wiring/budget.py``).
        exclude: layers that stay dense: names, patterns such as ``"head.*"``, types, or functions of (name, module).
        include: if given, only these become sparse.
        keep: ``None`` draws connections and weights anew; ``"largest"`` or ``"random"`` keeps entries of the dense
            weights that the model has.
        init, gain: scale of newly drawn weights (``wiring/init.py``).
        seed: decides everything that is drawn.
        device: where to put a model that is on ``meta``.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope (={scope!r}) must be one of {SCOPES}")
    if keep not in KEEPS:
        raise ValueError(f"keep (={keep!r}) must be one of {KEEPS}")
    candidates = _candidates(model, _matcher(exclude), None if include is None else _matcher(include))
    shapes = [c.shape for c in candidates]
    counts = allocate(
        [s.name for s in shapes], [(s.n_out, s.n_in) for s in shapes], allocation, connectivity, budget
    )
    groups = [list(range(len(candidates)))] if scope == "global" else [[i] for i in range(len(candidates))]
    replacement: dict[int, nn.Module] = {}
    for index, group in enumerate(groups):
        members = [candidates[i] for i in group]
        group_counts = [counts[i] for i in group]
        wiring = _wire(members, group_counts, keep, init, gain, seed, index, device)
        for part, member in enumerate(members):
            replacement[id(member.module)] = _sparse_twin(member.module, wiring, part)
    model = replace_modules(model, replacement)
    _materialise(model, torch.device("cpu" if device is None else device))
    return with_runs(model)


def _matcher(patterns: Pattern | Iterable[Pattern]) -> Callable[[str, nn.Module], bool]:
    listed = [patterns] if isinstance(patterns, str | type) or callable(patterns) else list(patterns)

    def matches(name: str, module: nn.Module) -> bool:
        for pattern in listed:
            if isinstance(pattern, str):
                if fnmatch.fnmatchcase(name, pattern):
                    return True
            elif isinstance(pattern, type):
                if isinstance(module, pattern):
                    return True
            elif pattern(name, module):
                return True
        return False

    return matches


def _candidates(
    model: nn.Module,
    excluded: Callable[[str, nn.Module], bool],
    included: Callable[[str, nn.Module], bool] | None,
) -> list[_Candidate]:
    found: dict[int, _Candidate] = {}
    weights: dict[int, str] = {}  # which names hold a weight, to find ties with layers that stay dense
    for name, module in model.named_modules(remove_duplicate=False):
        # Subclasses are left alone: they may use their weight in ways of their own.
        if type(module) is not nn.Linear:
            continue
        if excluded(name, module) or (included is not None and not included(name, module)):
            continue
        if module.in_features == 0 or module.out_features == 0:
            continue
        if id(module) in found:
            found[id(module)].names.append(name)
        elif id(module.weight) in weights:
            raise ValueError(
                f"the weight of {name!r} is also that of {weights[id(module.weight)]!r}: exclude both, or share the module"
            )
        else:
            found[id(module)] = _Candidate([name], module)
            weights[id(module.weight)] = name
    if not found:
        raise ValueError(
            f"model (={type(model).__name__}) has nothing to sparsify: no nn.Linear that is not excluded"
        )
    chosen = {id(c.module) for c in found.values()}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            if id(module) not in chosen and id(parameter) in weights:
                raise ValueError(f"the weight of {weights[id(parameter)]!r} is tied to {name!r}, which stays dense")
    return list(found.values())


def _wire(
    members: list[_Candidate],
    counts: list[int],
    keep: str | None,
    init: str,
    gain: float,
    seed: int,
    index: int,
    device: torch.device | str | None,
) -> Wiring:
    first = members[0].module.weight
    on_meta = any(m.module.weight.is_meta for m in members)
    shapes = [m.shape for m in members]
    if keep is None:
        target = torch.device("cpu" if device is None else device) if on_meta else first.device
        return Wiring(
            shapes, counts, seed=seed, index=index, init=init, gain=gain, device=target, dtype=first.dtype
        )
    if on_meta:
        raise ValueError(f"keep (={keep!r}) needs the dense weights of the model, but they are on the meta device")
    geometry = Geometry(tuple(s.n_out for s in shapes), tuple(s.n_in for s in shapes))
    positions, weights = [], []
    for part, (member, count) in enumerate(zip(members, counts, strict=True)):
        dense = member.module.weight.detach().t().reshape(-1)  # input-major, as positions count
        chosen = _kept(dense, count, keep, seed, index, part)
        positions.append(geometry.position_start[part] + chosen)
        weights.append(dense[chosen])
    return Wiring.from_connections(shapes, torch.cat(positions), torch.cat(weights), seed=seed, index=index)


def _kept(dense: Tensor, count: int, keep: str, seed: int, index: int, part: int) -> Tensor:
    if keep == "largest":
        return dense.abs().topk(count).indices.sort().values
    stream = stream_of(Stream.POSITIONS, index, layer=part)
    return philox.sample_sorted(dense.numel(), count, seed, stream, 0, dense.device)


def _sparse_twin(module: nn.Linear, wiring: Wiring, part: int) -> SparseLinear:
    bias = module.bias is not None
    twin = SparseLinear(
        module.in_features, module.out_features, bias, wiring=wiring, part=part, owner=part == 0
    )
    if twin.bias is not None and not module.bias.is_meta:
        twin.bias = module.bias  # the very Parameter, so that optimisers that hold it keep it
    return twin.train(module.training)


def _materialise(model: nn.Module, device: torch.device) -> None:
    """Make what is still on the meta device: biases are there already, norms and embeddings are not."""
    for name, module in model.named_modules():
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not any(t.is_meta for t in tensors):
            continue
        reset = getattr(module, "reset_parameters", None)
        if reset is None:
            raise ValueError(
                f"module {name!r} (={type(module).__name__}) is on the meta device and has no reset_parameters(): "
                "build it on a real device"
            )
        module.to_empty(device=device, recurse=False)
        reset()
