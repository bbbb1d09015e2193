"""Which network a file holds, if it is a plain stack: enough to build it from the file alone (``docs/format.md``)."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from wirebound.checkpoint.container import CheckpointError, Container, Entry, require
from wirebound.nn.activations import ACTIVATIONS
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.dropout import Dropout
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
    "linear": (nn.Linear, ()),
    "sparse-conv1d": (SparseConv1d, _CONV), "sparse-conv2d": (SparseConv2d, _CONV),
    "conv1d": (nn.Conv1d, _CONV), "conv2d": (nn.Conv2d, _CONV),
    "batch-norm1d": (nn.BatchNorm1d, _NORM), "batch-norm2d": (nn.BatchNorm2d, _NORM),
    "max-pool1d": (nn.MaxPool1d, _MAX), "max-pool2d": (nn.MaxPool2d, _MAX),
    "avg-pool1d": (nn.AvgPool1d, _MEAN), "avg-pool2d": (nn.AvgPool2d, (*_MEAN, "divisor_override")),
    **{f"adaptive-avg-pool{n}d": (getattr(nn, f"AdaptiveAvgPool{n}d"), ("output_size",)) for n in (1, 2)},
    "flatten": (nn.Flatten, ()),
    **{name: (ACTIVATIONS[name], ()) for name in ("relu", "tanh", "sigmoid", "silu", "relu6")},
    "gelu": (nn.GELU, ("approximate",)),
    "leaky-relu": (nn.LeakyReLU, ("negative_slope",)),
    "elu": (nn.ELU, ("alpha",)),
    "dropout": (nn.Dropout, ("p",)), "seeded-dropout": (Dropout, ("p", "seed", "index")), "dropout2d": (nn.Dropout2d, ("p",)),
    "identity": (nn.Identity, ()),
}
NAMES = {kind: name for name, (kind, _) in KINDS.items()}
_DIMENSIONS = {"linear": 2, "conv1d": 3, "conv2d": 4}  # of a weight
_MOST = 1 << 31  # of any number among the settings
Arguments = tuple[tuple[int, ...], dict[str, Any]]  # sizes, and what a constructor is given by name beside the settings

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
    of: Any
    for name, of in modules:
        kind = NAMES.get(type(of), "")
        if not kind:
            return None
        values = {key: getattr(of, key) for key in KINDS[kind][1]}
        settings = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        sized = not kind.startswith("batch-norm") or of.affine or of.track_running_stats
        flat = kind != "flatten" or (of.start_dim, of.end_dim) == (1, -1)
        if not sized or not flat or not all(map(_is_setting, settings.values())):
            return None
        item: dict[str, Any] = {"name": name, "type": kind, **({"settings": settings} if settings else {})}
        if kind in _DIMENSIONS or isinstance(of, SparseLayer):
            item["bias"] = of.bias is not None
        if isinstance(of, SparseLayer):
            item |= {"wiring": numbers[id(of.wiring)], "part": of.layer_id}
        stack.append(item)
    return stack


def _is_setting(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 2 and all(type(size) is int and _is_setting(size) for size in value)
    return value is None or type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < _MOST)


def build_stack(document: Mapping[str, Any], file: Container) -> nn.Module:
    """The model that a file describes, without its weights; no array is made longer than it is in the file."""
    section: Any = document.get("model")
    require(isinstance(section, dict), "it holds no model")
    stack, described = section.get("stack"), section.get("wirings")
    how = "build it in Python and use wb.load(path, model=model), then the functions of wirebound.export"
    require(stack is not None, f"it does not say which network it holds, because that is no plain stack of layers: {how}")
    known = isinstance(stack, list) and all(isinstance(item, dict) for item in stack)
    require(known, "its stack must be a list of modules")
    require(isinstance(described, list), "wirings must be a list")
    made, taken, model = [_wiring(item, file) for item in described], set[tuple[int, int]](), nn.Sequential()
    for item in stack:
        name, kind, given = item.get("name"), item.get("type"), item.get("settings", {})
        fits = isinstance(name, str) and name and "." not in name and name not in model._modules
        require(fits, f"the name of a module (={str(name)[:40]!r}) must be a text of its own without dots")
        fits = isinstance(kind, str) and kind in KINDS
        require(fits, f"the type of module {name!r} (={str(kind)[:40]!r}) must be one of {sorted(KINDS)}")
        make, wanted = KINDS[kind]
        fits = isinstance(given, dict) and set(given) == set(wanted)
        require(fits, f"the settings of module {name!r} ({kind}) must be {', '.join(wanted) or 'none'}")
        for key, value in given.items():
            told = f"(={str(value)[:40]}) must be numbers or a text"
            require(_is_setting(value), f"setting {key} of module {name!r} {told}")
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        if kind.startswith("sparse-"):
            sizes, more = _sparse(name, item, settings, made, taken)
        else:
            sizes, more = _dense(name, kind, settings, file.entries)
        if len(sizes) == 2:
            more["bias"], held = bool(item.get("bias")), file.entries.get(f"{name}.bias")
            fits = not more["bias"] or (held is not None and held.shape == sizes[1:])
            require(fits, f"layer {name!r} must have {sizes[1]} biases")
        try:
            model.add_module(name, make(*sizes, **settings, **more))
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(f"the settings of module {name!r} do not fit: {str(error)[:160]}") from None
    return with_runs(model)


def _sparse(
    name: str, item: Mapping[str, Any], settings: Mapping[str, Any], made: list[Wiring], taken: set[tuple[int, int]]
) -> Arguments:
    number, part = item.get("wiring", -1), item.get("part", -1)
    fits = type(number) is int and 0 <= number < len(made)
    require(fits, f"the wiring of layer {name!r} (={str(number)[:20]}) must be in [0, {len(made)})")
    layers = made[number].layers
    fits = type(part) is int and 0 <= part < len(layers)
    require(fits, f"the part of layer {name!r} (={str(part)[:20]}) must be in [0, {len(layers)})")
    require((number, part) not in taken, f"layer {name!r} must have a part of its wiring for itself")
    owner, n_in = all(number != other for other, _ in taken), layers[part].n_in
    taken.add((number, part))
    if settings:  # a convolution: its matrix has the channels of a group times the places of the kernel
        kernel, groups = settings["kernel_size"], settings["groups"]
        places = math.prod(kernel) if isinstance(kernel, tuple) else 0
        fits = places >= 1 and type(groups) is int and groups >= 1 and not n_in % places
        require(fits, f"kernel_size and groups of module {name!r} must fit its matrix of {n_in} columns")
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
    described: Any = item.get("layers") if isinstance(item, dict) else None
    require(described and isinstance(described, list), "each wiring must have layers, a name and a budget")
    name, entries, layers = str(item.get("name")), file.entries, list[LayerShape]()
    for layer in described:
        fits = isinstance(layer, list) and len(layer) == 3 and all(type(n) is int and n > 0 for n in layer[1:])
        require(fits, f"a layer of wiring {name[:40]!r} must be a name and two sizes")
        layers.append(LayerShape(str(layer[0]), layer[1], layer[2]))
    theta, colptr = entries.get(f"{name}.theta"), entries.get(f"{name}.colptr")
    columns, outputs = sum(layer.n_in for layer in layers), sum(layer.n_out for layer in layers)
    if theta is None or colptr is None or len(theta.shape) != 1 or not theta.dtype.is_floating_point:
        raise CheckpointError(f"wiring {name[:40]!r} must have its arrays")
    (left,) = theta.shape
    fits = colptr.shape == (columns + 1,) and left <= sum(layer.possible for layer in layers)
    require(fits, f"the arrays of wiring {name[:40]!r} must fit its layers")
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
            require(held == wanted, f"{array} of wiring {name[:40]!r} must be {wanted.dtype} of shape {wanted.shape}")
            setattr(wiring, array, file.tensor(f"{name}.{array}"))
    return wiring
