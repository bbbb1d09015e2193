"""Which network a file holds, if it is a plain stack: enough to build it again from the file alone.

A module's sizes are those of its tensors and wirings; what else it was made with are its settings, by torch's names.
Of other models a file keeps the tensors, and who loads it must build the model; see ``docs/format.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from wirebound.checkpoint.container import CheckpointError, Container, Entry
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import SparseLayer, wirings
from wirebound.nn.stack import SparseSequential, with_runs
from wirebound.wiring import LayerShape, Wiring

_CONV = ("groups", "kernel_size", "stride", "padding", "dilation", "padding_mode")
_NORM = ("eps", "momentum", "affine", "track_running_stats")
_MAX = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
# The modules that a file can name, each with its settings.
KINDS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "sparse-linear": (SparseLinear, ()),
    "sparse-conv1d": (SparseConv1d, _CONV),
    "sparse-conv2d": (SparseConv2d, _CONV),
    "linear": (nn.Linear, ()),
    "conv1d": (nn.Conv1d, _CONV),
    "conv2d": (nn.Conv2d, _CONV),
    "batch-norm1d": (nn.BatchNorm1d, _NORM),
    "batch-norm2d": (nn.BatchNorm2d, _NORM),
    "max-pool1d": (nn.MaxPool1d, _MAX),
    "max-pool2d": (nn.MaxPool2d, _MAX),
    "avg-pool1d": (nn.AvgPool1d, _MEAN),
    "avg-pool2d": (nn.AvgPool2d, (*_MEAN, "divisor_override")),
    "adaptive-avg-pool1d": (nn.AdaptiveAvgPool1d, ("output_size",)),
    "adaptive-avg-pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "flatten": (nn.Flatten, ()),
    "relu": (nn.ReLU, ()),
    "tanh": (nn.Tanh, ()),
    "sigmoid": (nn.Sigmoid, ()),
    "gelu": (nn.GELU, ("approximate",)),
    "silu": (nn.SiLU, ()),
    "relu6": (nn.ReLU6, ()),
    "leaky-relu": (nn.LeakyReLU, ("negative_slope",)),
    "elu": (nn.ELU, ("alpha",)),
    "dropout": (nn.Dropout, ("p",)),
    "dropout2d": (nn.Dropout2d, ("p",)),
    "identity": (nn.Identity, ()),
}
NAMES = {kind: name for name, (kind, _) in KINDS.items()}
_DIMENSIONS = {"linear": 2, "conv1d": 3, "conv2d": 4}  # of a weight
_MOST = 1 << 31  # of any number among the settings

# A layer may have many more outputs than a file holds numbers, because rows without connections take no bytes. What
# takes memory for each of them is made for so many: this number of all layers, or this number for each that is held.
FREE_OUTPUTS, OUTPUTS_PER_NUMBER = 1 << 20, 64


def most_outputs(held: int) -> int:
    """Outputs of all layers of a model of ``held`` weights and biases for which arrays may be made."""
    return max(FREE_OUTPUTS, OUTPUTS_PER_NUMBER * held)


def describe_stack(model: nn.Module) -> list[dict[str, Any]] | None:
    """The modules of a plain stack in their order, so that a file alone says which network it holds; else None."""
    if type(model) not in (nn.Sequential, SparseSequential):
        return None
    modules = list(model._modules.items())
    # A module that is used twice, or two with the same connections, is more than a list can say.
    used = [(id(m.wiring), m.layer_id) if isinstance(m, SparseLayer) else (id(m), 0) for _, m in modules]
    if len(set(used)) < len(used):
        return None
    numbers = {id(wiring): number for number, wiring in enumerate(wirings(model))}
    stack: list[dict[str, Any]] = []
    for name, module in modules:
        kind = "" if module is None else NAMES.get(type(module), "")
        if not kind:
            return None
        of: Any = module
        values = {key: getattr(of, key) for key in KINDS[kind][1]}
        settings = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        sized = not kind.startswith("batch-norm") or of.affine or of.track_running_stats
        flat = kind != "flatten" or (of.start_dim, of.end_dim) == (1, -1)
        if not sized or not flat or not all(map(_is_setting, settings.values())):
            return None
        item: dict[str, Any] = {"name": name, "type": kind, **({"settings": settings} if settings else {})}
        if kind in _DIMENSIONS or isinstance(module, SparseLayer):
            item["bias"] = of.bias is not None
        if isinstance(module, SparseLayer):
            item |= {"wiring": numbers[id(module.wiring)], "part": module.layer_id}
        stack.append(item)
    return stack


def _is_setting(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 2 and all(type(size) is int and _is_setting(size) for size in value)
    return value is None or type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < _MOST)


def build_stack(document: Mapping[str, Any], file: Container) -> nn.Module:
    """The model that a file describes, with weights that are still to be loaded.

    No array is made longer here than it is in the file, whatever the document says.
    """
    section = document.get("model")
    if not isinstance(section, dict):
        raise CheckpointError("it holds no model")
    stack, described = section.get("stack"), section.get("wirings")
    if stack is None:
        raise CheckpointError(
            "it does not say which network it holds, because that is no plain stack of layers: build the model in "
            "Python and use wb.load(path, model=model), then the functions of wirebound.export"
        )
    if not isinstance(stack, list) or not all(isinstance(item, dict) for item in stack):
        raise CheckpointError("its stack must be a list of modules")
    if not isinstance(described, list):
        raise CheckpointError("wirings must be a list")
    made, taken, model = [_wiring(item, file) for item in described], set[tuple[int, int]](), nn.Sequential()
    for item in stack:
        name, kind, given = item.get("name"), item.get("type"), item.get("settings", {})
        if not isinstance(name, str) or not name or "." in name or name in model._modules:
            raise CheckpointError(f"the name of a module (={str(name)[:40]!r}) must be a text of its own without dots")
        if not isinstance(kind, str) or kind not in KINDS:
            raise CheckpointError(f"the type of module {name!r} (={str(kind)[:40]!r}) must be one of {sorted(KINDS)}")
        make, wanted = KINDS[kind]
        if not isinstance(given, dict) or set(given) != set(wanted):
            raise CheckpointError(f"the settings of module {name!r} ({kind}) must be {', '.join(wanted) or 'none'}")
        for key, value in given.items():
            if not _is_setting(value):
                raise CheckpointError(f"setting {key} of module {name!r} (={str(value)[:40]}) must be numbers or a text")
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        if kind.startswith("sparse-"):
            sizes, more = _sparse(name, item, settings, made, taken)
        else:
            sizes, more = _dense(name, kind, settings, file.entries)
        if len(sizes) == 2:
            more["bias"], held = bool(item.get("bias")), file.entries.get(f"{name}.bias")
            if more["bias"] and (held is None or held.shape != sizes[1:]):
                raise CheckpointError(f"layer {name!r} must have {sizes[1]} biases")
        try:
            model.add_module(name, make(*sizes, **settings, **more))
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(f"the settings of module {name!r} do not fit: {str(error)[:160]}") from None
    return with_runs(model)


Arguments = tuple[tuple[int, ...], dict[str, Any]]  # sizes, and what a constructor is given by name beside the settings


def _sparse(
    name: str, item: Mapping[str, Any], settings: Mapping[str, Any], made: list[Wiring], taken: set[tuple[int, int]]
) -> Arguments:
    number, part = item.get("wiring"), item.get("part")
    if type(number) is not int or not 0 <= number < len(made):
        raise CheckpointError(f"the wiring of layer {name!r} (={str(number)[:20]}) must be in [0, {len(made)})")
    layers = made[number].layers
    if type(part) is not int or not 0 <= part < len(layers):
        raise CheckpointError(f"the part of layer {name!r} (={str(part)[:20]}) must be in [0, {len(layers)})")
    if (number, part) in taken:
        raise CheckpointError(f"layer {name!r} must have a part of its wiring for itself")
    owner, n_in = all(number != other for other, _ in taken), layers[part].n_in
    taken.add((number, part))
    if settings:  # a convolution: its matrix has the channels of a group times the places of the kernel
        kernel, groups = settings["kernel_size"], settings["groups"]
        places = math.prod(kernel) if isinstance(kernel, tuple) else 0
        if places < 1 or type(groups) is not int or groups < 1 or n_in % places:
            raise CheckpointError(f"kernel_size and groups of module {name!r} must fit its matrix of {n_in} columns")
        n_in = n_in // places * groups
    return (n_in, layers[part].n_out), {"wiring": made[number], "layer_id": part, "owner": owner}


def _dense(name: str, kind: str, settings: Mapping[str, Any], entries: Mapping[str, Entry]) -> Arguments:
    """A module without a wiring is as large as its tensors in the file are."""
    dimensions = 1 if kind.startswith("batch-norm") else _DIMENSIONS.get(kind)
    if dimensions is None:
        return (), {}
    held = entries.get(f"{name}.weight", entries.get(f"{name}.running_mean"))
    if held is None or len(held.shape) != dimensions:
        raise CheckpointError(f"module {name!r} ({kind}) must have weights or statistics of {dimensions} dimensions")
    if dimensions == 1:
        return held.shape, {"dtype": held.dtype}
    groups = settings.get("groups", 1)
    if settings and (settings["kernel_size"] != held.shape[2:] or type(groups) is not int):
        raise CheckpointError(f"kernel_size and groups of module {name!r} must fit its kernel {held.shape}")
    return (held.shape[1] * groups, held.shape[0]), {"dtype": held.dtype}


def _wiring(item: Any, file: Container) -> Wiring:
    """A wiring of this shape."""
    described = item.get("layers") if isinstance(item, dict) else None
    if not isinstance(described, list) or not described:
        raise CheckpointError("each wiring must have layers, a name and a budget")
    name, entries, layers = str(item.get("name")), file.entries, list[LayerShape]()
    for layer in described:
        if not isinstance(layer, list) or len(layer) != 3 or not all(type(n) is int and n > 0 for n in layer[1:]):
            raise CheckpointError(f"a layer of wiring {name[:40]!r} must be a name and two sizes")
        layers.append(LayerShape(str(layer[0]), layer[1], layer[2]))
    theta, colptr = entries.get(f"{name}.theta"), entries.get(f"{name}.colptr")
    columns, outputs = sum(layer.n_in for layer in layers), sum(layer.n_out for layer in layers)
    if theta is None or colptr is None or len(theta.shape) != 1 or not theta.dtype.is_floating_point:
        raise CheckpointError(f"wiring {name[:40]!r} must have its arrays")
    (left,) = theta.shape
    if colptr.shape != (columns + 1,) or left > sum(layer.possible for layer in layers):
        raise CheckpointError(f"the arrays of wiring {name[:40]!r} must fit its layers")
    if f"{name}.fan_caps" in entries and outputs > most_outputs(left):  # caps are checked neuron by neuron
        few = f"has caps on {outputs:,} outputs but only {left:,} connections"
        raise CheckpointError(f"wiring {name[:40]!r} {few}: at most {most_outputs(left):,} outputs can be checked")
    counts = []
    for shape in layers:  # any counts of the right sum: the file's own are loaded over them
        counts.append(min(left, shape.possible))
        left -= counts[-1]
    wiring = Wiring(layers, counts, dtype=theta.dtype)
    # What only some wirings have; whether it is right is checked when the file is loaded.
    caps, signs = Entry(torch.int64, (2, len(layers))), Entry(torch.int8, (columns,))
    for array, wanted in (("fan_caps", caps), ("column_signs", signs), ("alive", Entry(torch.bool, theta.shape))):
        held = entries.get(f"{name}.{array}")
        if held is not None:
            if held != wanted:
                raise CheckpointError(f"{array} of wiring {name[:40]!r} must be {wanted.dtype} of shape {wanted.shape}")
            setattr(wiring, array, file.tensor(f"{name}.{array}"))
    return wiring
