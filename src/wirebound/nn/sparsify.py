"""``sparsify``: any torch model with its large matrices replaced by sparse layers inside one budget."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wirebound.nn.attention import leave_fast_paths
from wirebound.nn.kinds import KINDS, Kind, Matrix, Slot, masked
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
    """A module that becomes sparse, with all the names under which the model holds it."""

    names: list[str]
    module: nn.Module
    kind: Kind

    @functools.cached_property
    def matrices(self) -> list[Matrix]:
        return self.kind.matrices(self.module)

    @property
    def shapes(self) -> list[LayerShape]:
        return [matrix.shape(self.names[0]) for matrix in self.matrices]


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
    """Replace the large matrices of ``model`` by sparse ones, in place, and return it.

    Linear layers, convolutions, LSTMs, GRUs and attention become their sparse twins; all else stays as it is, unless
    ``include`` names it.

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
        include: if given, only these become sparse. It may also name modules or parameters that have no sparse layer,
            such as ``"embedding.weight"`` or ``nn.Embedding``: those get masked dense storage (``nn/masked.py``).
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
    matrices = [matrix for candidate in candidates for matrix in candidate.matrices]
    shapes = [shape for candidate in candidates for shape in candidate.shapes]
    counts = allocate(
        [s.name for s in shapes], [(s.n_out, s.n_in) for s in shapes], allocation, connectivity, budget
    )
    groups = [list(range(len(shapes)))] if scope == "global" else [[i] for i in range(len(shapes))]
    slots: list[Slot] = []
    for index, group in enumerate(groups):
        members = [(matrices[i].weight, shapes[i], counts[i]) for i in group]
        wiring = _wire(members, keep, init, gain, seed, index, device)
        slots += [(wiring, part) for part in range(len(group))]
    replacement: dict[int, nn.Module] = {}
    for candidate in candidates:
        mine, slots = slots[: len(candidate.matrices)], slots[len(candidate.matrices) :]
        replacement[id(candidate.module)] = candidate.kind.twin(candidate.module, mine)
    model = replace_modules(model, replacement)
    _materialise(model, torch.device("cpu" if device is None else device))
    leave_fast_paths(model)
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
    inside: list[str] = []  # names of modules found so far that have modules of their own
    weights: dict[int, tuple[str, int, str]] = {}  # each weight that becomes sparse, and who holds it
    for name, module in model.named_modules(remove_duplicate=False):
        if any(name.startswith(f"{above}." if above else "") for above in inside):
            continue
        kind = _kind(name, module, excluded, included)
        if kind is None:
            continue
        if id(module) in found:
            found[id(module)].names.append(name)
            continue
        if any(s.possible == 0 for s in _Candidate([name], module, kind).shapes):
            continue
        found[id(module)] = _Candidate([name], module, kind)
        for parameter in kind.parameters(module):
            weight = module.get_parameter(parameter)
            if id(weight) in weights:
                raise ValueError(
                    f"the weight of {name!r} is also that of {weights[id(weight)][0]!r}: exclude both, or share the module"
                )
            holder, _, own = parameter.rpartition(".")
            weights[id(weight)] = (name, id(module.get_submodule(holder)), own)
        if module._modules:
            inside.append(name)
    if not found:
        kinds = ", ".join(f"nn.{kind.__name__}" for kind in KINDS)
        raise ValueError(f"model (={type(model).__name__}) has nothing to sparsify: none of {kinds} that is not excluded")
    for name, module in model.named_modules():
        for own, parameter in module._parameters.items():
            held = weights.get(id(parameter))
            if held is not None and held[1:] != (id(module), own):
                raise ValueError(f"the weight of {held[0]!r} is tied to {name!r}, which stays dense")
    return list(found.values())


def _kind(
    name: str,
    module: nn.Module,
    excluded: Callable[[str, nn.Module], bool],
    included: Callable[[str, nn.Module], bool] | None,
) -> Kind | None:
    """What a module becomes, or None if it stays as it is."""
    kind = KINDS.get(type(module))
    if kind is not None:
        wanted = not excluded(name, module) and (included is None or included(name, module))
        return kind if wanted else None
    if included is None:
        return None
    named = []
    for parameter, value in module._parameters.items():
        if value is None or value.dim() < 2:
            continue
        # The module was named, or the parameter; a function or a type sees the module.
        names = [name, f"{name}.{parameter}" if name else parameter]
        if any(included(n, module) for n in names) and not any(excluded(n, module) for n in names):
            named.append(parameter)
    return masked(named) if named else None


def _wire(
    members: list[tuple[Tensor, LayerShape, int]],
    keep: str | None,
    init: str,
    gain: float,
    seed: int,
    index: int,
    device: torch.device | str | None,
) -> Wiring:
    first = members[0][0]
    for weight, shape, _ in members:
        if weight.dtype is not first.dtype:
            raise ValueError(
                f"the layers of one budget must have one dtype: {shape.name!r} has {weight.dtype}, "
                f"{members[0][1].name!r} has {first.dtype}"
            )
    on_meta = any(weight.is_meta for weight, _, _ in members)
    shapes, counts = [shape for _, shape, _ in members], [count for _, _, count in members]
    if keep is None:
        target = torch.device("cpu" if device is None else device) if on_meta else first.device
        return Wiring(
            shapes, counts, seed=seed, index=index, init=init, gain=gain, device=target, dtype=first.dtype
        )
    if on_meta:
        raise ValueError(f"keep (={keep!r}) needs the dense weights of the model, but they are on the meta device")
    geometry = Geometry(tuple(s.n_out for s in shapes), tuple(s.n_in for s in shapes))
    positions, weights = [], []
    for part, (weight, _, count) in enumerate(members):
        dense = weight.detach().flatten(1).t().reshape(-1)  # input-major, as positions count
        chosen = _kept(dense, count, keep, seed, index, part)
        positions.append(geometry.position_start[part] + chosen)
        weights.append(dense[chosen])
    return Wiring.from_connections(shapes, torch.cat(positions), torch.cat(weights), seed=seed, index=index)


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
