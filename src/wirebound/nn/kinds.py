"""Which torch modules have a sparse twin, and which of them may be replaced by it. A new layer is one entry here.

A subclass is taken for what it inherits from if it neither computes in a way of its own nor holds anything of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from wirebound.nn import cells, conv, conv_transpose, recurrent
from wirebound.nn.attention import SparseMultiheadAttention
from wirebound.nn.linear import SparseLinear, SparseTransposedLinear, is_conv1d
from wirebound.nn.masked import MaskedParameters
from wirebound.nn.sparse_layer import SparseModule

LayerKind = type[SparseModule] | MaskedParameters  # how a torch module becomes sparse: the two answer the same questions
_SPARSE: tuple[type[SparseModule], ...] = (
    SparseLinear,
    *(conv.SparseConv1d, conv.SparseConv2d, conv.SparseConv3d),
    *(conv_transpose.SparseConvTranspose1d, conv_transpose.SparseConvTranspose2d, conv_transpose.SparseConvTranspose3d),
    *(recurrent.SparseRNN, recurrent.SparseLSTM, recurrent.SparseGRU),
    *(cells.SparseRNNCell, cells.SparseLSTMCell, cells.SparseGRUCell),
    SparseMultiheadAttention,
)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What a subclass may override: it decides how a module starts or looks, not what it computes.
_HARMLESS = ("extra_repr", "reset_parameters", "_reset_parameters")
KINDS: dict[type[nn.Module], type[SparseModule]] = {sparse.dense_class: sparse for sparse in _SPARSE}


def kind_of(module: nn.Module) -> tuple[type[nn.Module], type[SparseModule]] | None:
    """The torch module that this one is, or is a subclass of, and what becomes of it; None if there is no sparse twin."""
    for base in type(module).__mro__:
        if base in KINDS or is_conv1d(base):
            return base, KINDS.get(base, SparseTransposedLinear)
    return None


def way_of_its_own(module: nn.Module, base: type[nn.Module]) -> str | None:
    """What a module of this kind computes differently, or None."""
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "belongs to an attention that stays dense"
    if "forward" in module.__dict__:
        return "has a forward() of its own"
    cls = type(module)
    if cls is base:
        return None
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
    """Raise for a module whose weights are not there, or not its own, with the way out."""
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
    """Raise unless these parameters are real numbers of a precision that the ops compute in."""
    for parameter in parameters:
        dtype = module.get_parameter(parameter).dtype
        if dtype not in DTYPES:
            known = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
            raise ValueError(
                f"{parameter!r} of module {name!r} (={type(module).__name__}) is {dtype}, but a sparse layer must be one "
                f"of {known}: exclude the module"
            )
