"""The structs of ``csrc/wirebound.h`` as ctypes sees them: the same fields in the same order."""

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "float": ctypes.c_float, "double": ctypes.c_double, "pointer": ctypes.c_void_p, "pair": ctypes.c_int64 * 2,
}  # fmt: skip
KINDS: dict[Any, dict[str, Any]] = {}  # of each struct, the type of each field


def _struct(name: str, *rows: str) -> Any:
    """A struct from rows of a type and the fields that have it; a struct may be the type of a field."""
    pairs = [(field, _TYPES[kind]) for kind, names in (row.split(": ") for row in rows) for field in names.split()]
    _TYPES[name] = made = type(name, (ctypes.Structure,), {"_fields_": pairs})
    KINDS[made] = dict(pairs)
    return made


@functools.lru_cache(maxsize=256)
def array_of(kind: Any, count: int) -> Any:
    """The type of an array. ctypes makes a class of it, which takes longer than a step, and forgets it again."""
    return kind * count


_FORMATS = {ctypes.c_void_p: "P", ctypes.c_int64: "q"}


def packer(kind: Any, pointers: int = 0) -> Callable[..., bytes]:
    """A function that makes a struct of pointers and int64, and pointers behind it, from all their values: it takes
    less time than a call with as many arguments."""
    packed = struct.Struct("".join(_FORMATS[field] for field in KINDS[kind].values()) + "P" * pointers)
    assert packed.size == ctypes.sizeof(kind) + pointers * ctypes.sizeof(ctypes.c_void_p)
    return packed.pack


LinearForward = _struct(
    "LinearForward", "pointer: x", "int64: x_stride", "pointer: y", "int64: y_stride batch n_in n_out connections",
    "pointer: colptr packed_rows theta", "int64: bound", "pointer: bias", "int64: threads blocks",
)  # fmt: skip
LinearBackward = _struct(
    "LinearBackward", "pointer: x", "int64: x_stride", "pointer: dy", "int64: dy_stride", "pointer: dx",
    "int64: dx_stride", "pointer: dtheta", "int64: batch n_in n_out connections", "pointer: colptr packed_rows theta",
    "int64: threads blocks",
)  # fmt: skip
Rule = _struct(
    "Rule", "int32: kind nesterov fresh decoupled maximize bound clamp", "uint32: stream", "uint64: seed",
    "int64: step clock", "double: lr momentum dampening weight_decay beta1 beta2 eps",
)  # fmt: skip
DriftAndNoise = _struct(
    "DriftAndNoise", "int64: first last", "double: shrink noise_std lr_factor decay_factor second_moment",
    "int32: frozen lazy",
)
Carried = _struct("Carried", "pointer: data", "int64: size fill")  # fill: the bits that a newborn has there
Step = _struct(
    "Step", "Rule: rule", "int64: budget layers",
    "pointer: n_in n_out colptr packed_rows theta gradient moment1 moment2 moment2_max birth drifts", "int64: n_drifts",
    "pointer: carried", "int64: n_carried", "pointer: shares born died active open_columns open_counts", "int32: wiring_index",
)  # fmt: skip
Parameter = _struct("Parameter", "pointer: data moment1 moment2 moment2_max", "double: weight_decay", "int64: step")
FusedLayer = _struct(
    "FusedLayer", "int64: n_in n_out", "int32: activation wiring", "int64: layer_id", "Parameter: weight bias",
    "double: dropout", "uint64: dropout_seed", "int64: dropout_calls dropout_index",
)  # fmt: skip
FusedWiring = _struct(
    "FusedWiring", "int64: budget layers",
    "pointer: n_in n_out colptr packed_rows theta moment1 moment2 moment2_max born shares shrink noise_std",
    "int64: drift_stride", "pointer: lr_factor decay_factor second_moment lazy", "int64: rewire_every", "double: weight_decay", "int64: clock", "uint64: seed", "int32: index bound",
)  # fmt: skip
FusedRun = _struct(
    "FusedRun", "int64: steps first_step n_layers n_wirings", "pointer: layers wirings", "Rule: rule", "pointer: lr x",
    "int64: x_stride", "int32: x_is_bytes loss_kind", "float: scale shift", "pointer: labels targets",
    "int64: target_stride", "pointer: order batch loss born", "int64: born_stride",
    "pointer: row_starts row_columns row_values active judged",
)  # fmt: skip
StackLayer = _struct(
    "StackLayer", "int64: n_in n_out budget", "pointer: colptr packed_rows theta bias", "int32: activation bound"
)
StackCall = _struct(
    "StackCall", "pointer: layers", "int64: n_layers", "pointer: x", "int64: x_stride batch", "pointer: kept y",
    "int64: y_stride", "pointer: dx", "int64: dx_stride",
)  # fmt: skip
Conv = _struct(
    "Conv", "int64: batch in_channels out_channels groups", "pair: in_size out_size kernel stride before dilation"
)
PoolNorm = _struct(
    "PoolNorm", "int64: batch channels", "pair: size pooled", "int64: window step radius", "double: alpha beta bias"
)
Stem = _struct("Stem", "PoolNorm: after", "int64: in_channels", "pair: in_size kernel before")
Pieces = _struct("Pieces", "int64: count channels", "pair: size piece")
Recurrent = _struct(
    "Recurrent", "int32: kind reverse", "int64: steps batch n_in n_hidden", "pointer: lengths",
    "int64: connections_ih connections_hh", "int32: bound",
    "pointer: colptr_ih packed_rows_ih theta_ih colptr_hh packed_rows_hh theta_hh bias_ih bias_hh x",
    "int64: x_time x_sample", "pointer: h_0 c_0 y", "int64: y_time y_sample", "pointer: h_n c_n kept",
)  # fmt: skip
RecurrentGradients = _struct(
    "RecurrentGradients", "pointer: dy", "int64: dy_time dy_sample", "pointer: dh_n dc_n dx", "int64: dx_time dx_sample",
    "pointer: dh_0 dc_0 dtheta_ih dtheta_hh dbias_ih dbias_hh sums h_before",
)  # fmt: skip
