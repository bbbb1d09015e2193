"""Which modules of a model ``sparsify`` replaces, by what it was told and by what they are, and the account of it.

A new layer is one entry of ``_SPARSE``. A subclass is taken for what it inherits from if it neither computes in a way of its
own nor holds anything of its own."""

import fnmatch
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from wirebound.nn import conv, conv_transpose, recurrent
from wirebound.nn.attention import SparseMultiheadAttention
from wirebound.nn.linear import SparseLinear, SparseTransposedLinear, is_conv1d
from wirebound.nn.masked import MaskedParameters
from wirebound.nn.sparse_layer import Matrix, SparseModule
from wirebound.wiring import LayerShape

_NAMED = 3  # modules of each group that the account names
Pattern = str | type[nn.Module] | Callable[[str, nn.Module], bool]
LayerKind = type[SparseModule] | MaskedParameters  # how a torch module becomes sparse: the two answer the same questions
_SPARSE: tuple[type[SparseModule], ...] = (
    SparseLinear,
    *(conv.SparseConv1d, conv.SparseConv2d, conv.SparseConv3d),
    *(conv_transpose.SparseConvTranspose1d, conv_transpose.SparseConvTranspose2d, conv_transpose.SparseConvTranspose3d),
    *(recurrent.SparseRNN, recurrent.SparseLSTM, recurrent.SparseGRU),
    *(recurrent.SparseRNNCell, recurrent.SparseLSTMCell, recurrent.SparseGRUCell),
    SparseMultiheadAttention,
)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What a subclass may override: it decides how a module starts or looks, not what it computes.
_HARMLESS = ("extra_repr", "reset_parameters", "_reset_parameters")
KINDS: dict[type[nn.Module], type[SparseModule]] = {sparse.dense_class: sparse for sparse in _SPARSE}


def kind_of(module: nn.Module) -> tuple[type[nn.Module], type[SparseModule]] | None:
    """The torch module that this one is, or is a subclass of, and its sparse twin; None if there is none."""
    for base in type(module).__mro__:
        if base in KINDS or is_conv1d(base):
            return base, KINDS.get(base, SparseTransposedLinear)
    return None


def way_of_its_own(module: nn.Module, base: type[nn.Module]) -> str | None:
    """What a module of this kind computes differently, or None."""
    cls = type(module)
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "belongs to an attention that stays dense"
    if "forward" in module.__dict__ or cls is base:
        return "has a forward() of its own" if "forward" in module.__dict__ else None
    inherited = [vars(parent) for parent in base.__mro__[: base.__mro__.index(nn.Module)]]
    methods = {name for names in inherited for name, value in names.items() if inspect.isroutine(value)}
    called = sorted(name for name in methods if not name.startswith("__") and name not in _HARMLESS)
    for name in ("forward", *called, "__call__", "__getattr__", "__getattribute__"):
        if inspect.getattr_static(cls, name) is not inspect.getattr_static(base, name):
            return f"overrides {name}()"
    return None


def belongings(module: nn.Module) -> str | None:
    """What a module holds that its kind does not know, or None."""
    known = {"weight", "bias"}
    if isinstance(module, nn.RNNBase):
        known = set(module._flat_weights_names)
    elif isinstance(module, nn.RNNCellBase):
        known = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    elif isinstance(module, nn.MultiheadAttention):
        known = {*(f"{name}_proj_weight" for name in ("in", "q", "k", "v")), "in_proj_bias", "bias_k", "bias_v", "out_proj"}
    own = {*module._parameters, *module._modules, *module._buffers} - known
    return f"has {min(own)!r} of its own" if own else None


def refuse(name: str, module: nn.Module) -> None:
    for fault in _faults(module):
        what = f"module {name!r} (={type(module).__name__})" if name else f"the {type(module).__name__}"
        raise ValueError(f"{what} cannot be sparsified as it is: {fault}, or exclude the module")


def _faults(module: nn.Module) -> Iterator[str]:
    for each in (module, *module.children()):
        if any(is_lazy(parameter) for parameter in each.parameters(recurse=False)):
            yield "its weights are not there before one batch went through the model: run one first"
        if parametrize.is_parametrized(each):
            name = next(iter(each.parametrizations))  # type: ignore[arg-type]
            undo = f"torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})"
            yield f"{name!r} is parametrized: call {undo} first"
        for hook in each._forward_pre_hooks.values():
            if isinstance(hook, BasePruningMethod):
                name = hook._tensor_name
                yield f"{name!r} is under torch.nn.utils.prune: call prune.remove(module, {name!r}) first"
            if isinstance(hook, WeightNorm | SpectralNorm):
                norm = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
                undo = f"torch.nn.utils.remove_{norm}(module, {hook.name!r})"
                yield f"{hook.name!r} is under torch.nn.utils.{norm}: call {undo} first"
    if isinstance(module, nn.RNNBase) and module.proj_size:
        yield f"proj_size (={module.proj_size}) must be 0: make it without projections"


def require_real(name: str, module: nn.Module, parameters: Sequence[str]) -> None:
    for parameter in parameters:
        dtype = module.get_parameter(parameter).dtype
        if dtype not in DTYPES:
            known = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
            what = f"{parameter!r} of module {name!r} (={type(module).__name__}) is {dtype}"
            raise ValueError(f"{what}, but a sparse layer must be one of {known}: exclude the module")


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
    """Names, types and functions, of which one must match; a name or a type stands for a module with all that is in it."""

    def __init__(self, argument: str, given: Pattern | Iterable[Pattern], model: nn.Module) -> None:
        listed = [given] if isinstance(given, str | type) or callable(given) else list(given)
        self.texts = [pattern for pattern in listed if isinstance(pattern, str)]
        self.types = tuple(pattern for pattern in listed if isinstance(pattern, type))
        self.functions = [pattern for pattern in listed if not isinstance(pattern, str | type)]
        self.covered: set[str] = set()  # names of modules
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        for name, module in model.named_modules(remove_duplicate=False):
            names.append(name)
            above = name.rpartition(".")[0] if name else None
            if above in self.covered or isinstance(module, self.types) or self._named(name):
                self.covered.add(name)
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
                other = weights[id(weight)][0]
                raise ValueError(f"the weight of {name!r} is also that of {other!r}: exclude both, or share the module")
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
    what = f"model (={type(model).__name__})"
    for name, layer in model.named_modules():
        if hasattr(layer, "dense_twin"):
            held = f"{name!r} is a {type(layer).__name__}" if name else f"it is a {type(layer).__name__}"
            return f"{what} is already sparse ({held}) and has nothing else to sparsify: wb.to_dense is the way back"
    kinds = ", ".join(f"nn.{kind.__name__}" for kind in KINDS)
    names = {id(module): name for name, module in model.named_modules()}
    left = "".join(f"; {names[number]!r} {why}" for number, why in list(choice.whys.items())[:3] if number in names)
    advice = "include= may name other modules or parameters, which then get masked storage"
    return f"{what} has nothing to sparsify: none of {kinds} that is not excluded{left}. {advice}"


def _kind(name: str, module: nn.Module, excluded: Patterns, included: Patterns | None, choice: Choice) -> LayerKind | None:
    known = kind_of(module)
    if known is not None:
        base, kind = known
        held = kind.weight_names(module)  # who names one of them names the layer
        if excluded(name, module, held) or (included is not None and not included(name, module, held)):
            choice.excluded.add(id(module))
            return None
        why = way_of_its_own(module, base)
        if why is None:
            refuse(name, module)
            why = belongings(module)
        if why is None:
            require_real(name, module, held)
            return kind
        choice.whys[id(module)] = why
    if included is None:
        if name in excluded.covered:  # functions may expect a module that has a sparse twin
            choice.excluded.add(id(module))
        return None
    weights = [own for own, value in module._parameters.items() if _is_weight(value)]
    named = [own for own in weights if included(name, module, [own]) and not excluded(name, module, [own])]
    if not named:
        choice.excluded.add(id(module))
        return None
    require_real(name, module, named)
    return MaskedParameters(named)


def _is_weight(parameter: nn.Parameter | None) -> TypeGuard[nn.Parameter]:
    return parameter is not None and not is_lazy(parameter) and parameter.dim() >= 2


def account_for(model: nn.Module, choice: Choice, frozen: Sequence[str], connections: int) -> tuple[str, float]:
    """What becomes sparse and what stays dense, in one line; and the share of weights that stay dense but are not excluded."""
    weights = [c.module.get_parameter(name) for c in choice.candidates for name in c.kind.weight_names(c.module)]
    taken, seen = sum(weight.numel() for weight in weights), {id(weight) for weight in weights}
    dense: dict[str, list[tuple[int, str]]] = {"dense embeddings": [], "dense": []}
    excluded = left = 0
    for name, module in model.named_modules():
        own = {id(p): p.numel() for p in module._parameters.values() if _is_weight(p) and id(p) not in seen}
        seen |= own.keys()
        count = sum(own.values())
        if id(module) in choice.excluded:
            excluded += count
        elif count:
            left += count
            why = f", which {choice.whys[id(module)]}" if id(module) in choice.whys else ""
            group = "dense embeddings" if isinstance(module, nn.Embedding | nn.EmbeddingBag) else "dense"
            dense[group].append((count, f"{name or 'the model'!r} ({type(module).__name__}{why}) {count:,}"))
    number, total = sum(len(c.matrices) for c in choice.candidates), taken + left + excluded
    matrices = "1 matrix" if number == 1 else f"{number} matrices"
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
