"""The modules that a file can name, so that a stack of them can be built from the file alone.

A module's sizes are those of its tensors and wirings; what else it was made with are its settings, by torch's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.layout import Entry
from wirebound.nn.conv import SparseConv1d, SparseConv2d
from wirebound.nn.linear import SparseLinear
from wirebound.wiring import LayerShape

PLAIN: dict[type[nn.Module], str] = {
    SparseLinear: "sparse-linear",
    SparseConv1d: "sparse-conv1d",
    SparseConv2d: "sparse-conv2d",
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.BatchNorm1d: "batch-norm1d",
    nn.BatchNorm2d: "batch-norm2d",
    nn.MaxPool1d: "max-pool1d",
    nn.MaxPool2d: "max-pool2d",
    nn.AvgPool1d: "avg-pool1d",
    nn.AvgPool2d: "avg-pool2d",
    nn.AdaptiveAvgPool1d: "adaptive-avg-pool1d",
    nn.AdaptiveAvgPool2d: "adaptive-avg-pool2d",
    nn.Flatten: "flatten",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.ReLU6: "relu6",
    nn.LeakyReLU: "leaky-relu",
    nn.ELU: "elu",
    nn.Dropout: "dropout",
    nn.Dropout2d: "dropout2d",
    nn.Identity: "identity",
}
TYPES: dict[str, type[nn.Module]] = {name: kind for kind, name in PLAIN.items()}
SPARSE = ("sparse-linear", "sparse-conv1d", "sparse-conv2d")
WEIGHTED = (*SPARSE, "linear", "conv1d", "conv2d")

_CONV = ("groups", "kernel_size", "stride", "padding", "dilation", "padding_mode")
_NORM = ("eps", "momentum", "affine", "track_running_stats")
_MAX = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_SETTINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sparse-conv1d", "sparse-conv2d", "conv1d", "conv2d"), _CONV),
    **dict.fromkeys(("batch-norm1d", "batch-norm2d"), _NORM),
    **dict.fromkeys(("max-pool1d", "max-pool2d"), _MAX),
    "avg-pool1d": _MEAN,
    "avg-pool2d": (*_MEAN, "divisor_override"),
    **dict.fromkeys(("adaptive-avg-pool1d", "adaptive-avg-pool2d"), ("output_size",)),
    "gelu": ("approximate",),
    "leaky-relu": ("negative_slope",),
    "elu": ("alpha",),
    **dict.fromkeys(("dropout", "dropout2d"), ("p",)),
}
_MOST = 1 << 31  # of any number among the settings


def settings_of(module: nn.Module) -> dict[str, Any] | None:
    """What a module was made with, as JSON has it; None if a file cannot say it."""
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and not (module.affine or module.track_running_stats):
        return None  # no tensor that says how large it is
    values = {name: getattr(module, name) for name in _SETTINGS.get(PLAIN[type(module)], ())}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return found if all(_is_setting(value) for value in found.values()) else None


def read_settings(name: str, kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a module in a file, each of a kind that a constructor may be given."""
    found, wanted = item.get("settings", {}), _SETTINGS.get(kind, ())
    if not isinstance(found, dict) or set(found) != set(wanted):
        raise CheckpointError(f"the settings of module {name!r} ({kind}) must be {', '.join(wanted) or 'none'}")
    for key, value in found.items():
        if not _is_setting(value):
            raise CheckpointError(f"setting {key} of module {name!r} (={str(value)[:40]}) must be numbers or a text")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


def _is_setting(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 2 and all(type(size) is int and _is_setting(size) for size in value)
    return value is None or type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < _MOST)


def channels_of(name: str, shape: LayerShape, settings: Mapping[str, Any]) -> int:
    """Input channels of a sparse convolution: its matrix has those of a group times the places of the kernel."""
    places = 1
    for size in settings["kernel_size"] if isinstance(settings["kernel_size"], tuple) else ():
        places *= size if type(size) is int else 0
    groups = settings["groups"]
    if places < 1 or type(groups) is not int or groups < 1 or shape.n_in % places:
        raise CheckpointError(f"kernel_size and groups of module {name!r} must fit its matrix of {shape.n_in} columns")
    return shape.n_in // places * groups


def make_dense(
    name: str, kind: str, bias: bool, settings: dict[str, Any], entries: Mapping[str, Entry]
) -> nn.Module:
    """A module without a wiring, as large as its tensors in the file are."""
    made: Any = TYPES[kind]
    if kind in WEIGHTED:
        weight = entries.get(f"{name}.weight")
        if weight is None or len(weight.shape) != {"linear": 2, "conv1d": 3, "conv2d": 4}[kind]:
            raise CheckpointError(f"layer {name!r} must have a weight {'matrix' if kind == 'linear' else 'kernel'}")
        require_bias(name, bias, weight.shape[0], entries)
        if kind == "linear":
            return nn.Linear(weight.shape[1], weight.shape[0], bias, dtype=weight.dtype)
        if settings["kernel_size"] != weight.shape[2:] or type(settings["groups"]) is not int:
            raise CheckpointError(f"kernel_size and groups of module {name!r} must fit its kernel {weight.shape}")
        channels = weight.shape[1] * settings["groups"]
        return _made(name, made, channels, weight.shape[0], bias=bias, dtype=weight.dtype, **settings)
    if kind.startswith("batch-norm"):
        known = next((entries[f"{name}.{key}"] for key in ("running_mean", "weight") if f"{name}.{key}" in entries), None)
        if known is None or len(known.shape) != 1:
            raise CheckpointError(f"module {name!r} must have statistics or weights")
        return _made(name, made, known.shape[0], dtype=known.dtype, **settings)
    return _made(name, made, **settings)


def _made(name: str, make: Any, *sizes: int, **settings: Any) -> nn.Module:
    try:
        module: nn.Module = make(*sizes, **settings)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the settings of module {name!r} do not fit: {str(error)[:160]}") from None
    return module


def require_bias(name: str, bias: bool, n_out: int, entries: Mapping[str, Entry]) -> None:
    """Biases are made before they are loaded: never more than the file holds."""
    if bias and (f"{name}.bias" not in entries or entries[f"{name}.bias"].shape != (n_out,)):
        raise CheckpointError(f"layer {name!r} must have {n_out} biases")
