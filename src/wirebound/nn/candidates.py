"""Which modules of a model ``sparsify`` replaces, by what it was told and by what they are, and the account of it."""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from torch import nn
from torch.nn.parameter import is_lazy

from wirebound.nn.kinds import KINDS, LayerKind, belongings, kind_of, refuse, require_real, way_of_its_own
from wirebound.nn.masked import MaskedParameters
from wirebound.nn.sparse_layer import Matrix
from wirebound.wiring import LayerShape

_NAMED = 3  # modules of each group that the account names
Pattern = str | type[nn.Module] | Callable[[str, nn.Module], bool]


@dataclass
class Candidate:
    """A module that becomes sparse, with all the names under which the model holds it."""

    names: list[str]
    module: nn.Module
    kind: LayerKind

    @functools.cached_property
    def matrices(self) -> list[Matrix]:
        return self.kind.matrices_of(self.module)

    @property
    def shapes(self) -> list[LayerShape]:
        return [matrix.shape(self.names[0]) for matrix in self.matrices]


@dataclass
class Choice:
    """What becomes sparse, and why other modules do not; these by ``id``."""

    candidates: list[Candidate] = field(default_factory=list)
    excluded: set[int] = field(default_factory=set)
    whys: dict[int, str] = field(default_factory=dict)


class Patterns:
    """Names, types and functions of (name, module), of which one must match; a name or a type stands for a module with
    all that is in it."""

    def __init__(self, argument: str, given: Pattern | Iterable[Pattern], model: nn.Module) -> None:
        listed = [given] if isinstance(given, str | type) or callable(given) else list(given)
        self.texts = [pattern for pattern in listed if isinstance(pattern, str)]
        self.types = tuple(pattern for pattern in listed if isinstance(pattern, type))
        self.functions = [pattern for pattern in listed if not isinstance(pattern, str | type)]
        self.covered: set[str] = set()  # names of modules
        for name, module in model.named_modules(remove_duplicate=False):
            above = name.rpartition(".")[0] if name else None
            if above in self.covered or isinstance(module, self.types) or self._named(name):
                self.covered.add(name)
        names = [name for name, _ in model.named_modules(remove_duplicate=False)]
        names += [name for name, _ in model.named_parameters(remove_duplicate=False)]
        for text in self.texts:
            if not fnmatch.filter(names, text):
                warnings.warn(f"{argument} names {text!r}, but no module or parameter of the model is called so", stacklevel=4)

    def _named(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, text) for text in self.texts)

    def __call__(self, name: str, module: nn.Module, parameters: Iterable[str]) -> bool:
        """Whether a module, or one of these parameters of it, is meant."""
        if name in self.covered or any(function(name, module) for function in self.functions):
            return True
        return any(self._named(f"{name}.{parameter}" if name else parameter) for parameter in parameters)


def find_candidates(
    model: nn.Module, exclude: Pattern | Iterable[Pattern], include: Pattern | Iterable[Pattern] | None
) -> Choice:
    """What ``sparsify`` replaces in a model; refuses weights that two modules share."""
    excluded = Patterns("exclude", exclude, model)
    included = None if include is None else Patterns("include", include, model)
    choice = Choice()
    found: dict[int, Candidate] = {}
    inside: list[str] = []  # names of modules found so far that are replaced with all that is in them
    weights: dict[int, tuple[str, int, str]] = {}  # each weight that becomes sparse, and who holds it
    for name, module in model.named_modules(remove_duplicate=False):
        if any(name.startswith(f"{above}." if above else "") for above in inside):
            continue
        kind = _kind(name, module, excluded, included, choice)
        if kind is None:
            continue
        if id(module) in found:
            found[id(module)].names.append(name)
            continue
        candidate = Candidate([name], module, kind)
        if any(shape.possible == 0 for shape in candidate.shapes):
            continue
        found[id(module)] = candidate
        for parameter in kind.weight_names(module):
            weight = module.get_parameter(parameter)
            if id(weight) in weights:
                raise ValueError(
                    f"the weight of {name!r} is also that of {weights[id(weight)][0]!r}: exclude both, or share the module"
                )
            holder, _, own = parameter.rpartition(".")
            weights[id(weight)] = (name, id(module.get_submodule(holder)), own)
        if module._modules and not kind.masked:
            inside.append(name)
    if not found:
        raise ValueError(_nothing(model, choice))
    for name, module in model.named_modules():
        for own, value in module._parameters.items():
            held = weights.get(id(value))
            if held is not None and held[1:] != (id(module), own):
                raise ValueError(f"the weight of {held[0]!r} is tied to {name!r}, which stays dense: exclude {held[0]!r}")
    choice.candidates = list(found.values())
    return choice


def _nothing(model: nn.Module, choice: Choice) -> str:
    """Why there is nothing to do."""
    what = f"model (={type(model).__name__})"
    for name, layer in model.named_modules():
        if hasattr(layer, "dense_twin"):
            held = f"{name!r} is a {type(layer).__name__}" if name else f"it is a {type(layer).__name__}"
            return f"{what} is already sparse ({held}) and has nothing else to sparsify: wb.to_dense is the way back"
    kinds = ", ".join(f"nn.{kind.__name__}" for kind in KINDS)
    names = {id(module): name for name, module in model.named_modules()}
    left = "".join(f"; {names[number]!r} {why}" for number, why in list(choice.whys.items())[:3] if number in names)
    return (
        f"{what} has nothing to sparsify: none of {kinds} that is not excluded{left}. include= may name other modules or "
        "parameters, which then get masked storage"
    )


def _kind(name: str, module: nn.Module, excluded: Patterns, included: Patterns | None, choice: Choice) -> LayerKind | None:
    """What a module becomes, or None if it stays as it is."""
    known = kind_of(module)
    if known is not None:
        base, kind = known
        weights = kind.weight_names(module)  # who names one of them names the layer
        if excluded(name, module, weights) or (included is not None and not included(name, module, weights)):
            choice.excluded.add(id(module))
            return None
        why = way_of_its_own(module, base)
        if why is None:
            refuse(name, module)
            why = belongings(module)
        if why is None:
            require_real(name, module, weights)
            return kind
        choice.whys[id(module)] = why
    if included is None:
        if name in excluded.covered:  # functions may expect a module that has a sparse twin
            choice.excluded.add(id(module))
        return None
    named = [
        parameter
        for parameter, value in module._parameters.items()
        if value is not None and not is_lazy(value) and value.dim() >= 2
        and included(name, module, [parameter]) and not excluded(name, module, [parameter])
    ]  # fmt: skip
    if not named:
        choice.excluded.add(id(module))
        return None
    require_real(name, module, named)
    return MaskedParameters(named)


def account_for(model: nn.Module, choice: Choice, frozen: Sequence[str], connections: int) -> tuple[str, float]:
    """What becomes sparse and what stays dense, in one line; and the share of weights that stay dense but are not excluded.

    Weights are parameters of two or more dimensions; biases and norms are not counted.
    """
    weights = [c.module.get_parameter(name) for c in choice.candidates for name in c.kind.weight_names(c.module)]
    taken, seen = sum(weight.numel() for weight in weights), {id(weight) for weight in weights}
    dense: dict[str, list[tuple[int, str]]] = {"dense embeddings": [], "dense": []}
    excluded = left = 0
    for name, module in model.named_modules():
        given = (p for p in module._parameters.values() if p is not None and not is_lazy(p) and p.dim() >= 2)
        own = {id(p): p.numel() for p in given if id(p) not in seen}
        seen |= own.keys()
        count = sum(own.values())
        if id(module) in choice.excluded:
            excluded += count
        elif count:
            left += count
            why = f", which {choice.whys[id(module)]}" if id(module) in choice.whys else ""
            group = "dense embeddings" if isinstance(module, nn.Embedding | nn.EmbeddingBag) else "dense"
            dense[group].append((count, f"{name or 'the model'!r} ({type(module).__name__}{why}) {count:,}"))
    number = sum(len(c.matrices) for c in choice.candidates)
    matrices = "1 matrix" if number == 1 else f"{number} matrices"
    total = taken + left + excluded
    parts = [f"{taken:,} of {total:,} weights ({matrices}) became sparse, with {connections:,} connections"]
    groups = {
        "masked, dense in every pass": [repr(shape.name) for c in choice.candidates if c.kind.masked for shape in c.shapes],
        "not trained, as before": [repr(name) for name in frozen],
        **{group: [text for _, text in sorted(found, key=lambda one: -one[0])] for group, found in dense.items()},
    }
    for what, names in groups.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts += [f"{what}: {', '.join(names[:_NAMED])}{more}"] if names else []
    parts += [f"dense by choice: {excluded:,}"] if excluded else []
    return "; ".join(parts), left / max(1, taken + left)
