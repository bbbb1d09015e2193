"""The structs of ``csrc/wirebound.h`` as ctypes sees them: the same fields in the same order."""

from __future__ import annotations

import ctypes
from ctypes import Structure
from typing import Any

_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "float": ctypes.c_float, "double": ctypes.c_double, "pointer": ctypes.c_void_p, "pair": ctypes.c_int64 * 2,
}  # fmt: skip


def _fields(*rows: str, **more: Any) -> list[tuple[str, Any]]:
    """Fields from rows of a type and the names that have it."""
    types = {**_TYPES, **more}
    return [(name, types[kind]) for kind, names in (row.split(": ") for row in rows) for name in names.split()]


class Rule(Structure):
    """The optimiser's rule as numbers."""

    _fields_ = _fields(
        "int32: kind nesterov fresh decoupled maximize bound clamp", "uint32: stream", "uint64: seed",
        "int64: step clock", "double: lr momentum dampening weight_decay beta1 beta2 eps",
    )  # fmt: skip


class DriftAndNoise(Structure):
    """Shrink and noise of connections first .. last, and their part of the rates."""

    _fields_ = _fields("int64: first last", "double: shrink noise_std lr_factor decay_factor", "int32: frozen")


class Carried(Structure):
    """An array that moves with its connections, and the bits that a newborn has there."""

    _fields_ = _fields("pointer: data", "int64: size fill")


class Step(Structure):
    """A whole step of one wiring."""

    _fields_ = _fields(
        "rule: rule", "int64: budget layers",
        "pointer: n_in n_out colptr packed_rows theta gradient moment1 moment2 moment2_max birth drifts",
        "int64: n_drifts", "pointer: carried", "int64: n_carried", "pointer: shares born died active",
        "int32: wiring_index", rule=Rule,
    )  # fmt: skip


class Parameter(Structure):
    """A dense parameter and its optimiser state."""

    _fields_ = _fields("pointer: data moment1 moment2 moment2_max", "double: weight_decay", "int64: step")


class FusedLayer(Structure):
    """One layer of a stack that is trained in one call."""

    _fields_ = _fields(
        "int64: n_in n_out", "int32: activation wiring", "int64: layer_id", "parameter: weight bias",
        parameter=Parameter,
    )  # fmt: skip


class FusedWiring(Structure):
    """A wiring, its optimiser state, and how it drifts and rewires."""

    _fields_ = _fields(
        "int64: budget layers",
        "pointer: n_in n_out colptr packed_rows theta moment1 moment2 moment2_max born shares shrink noise_std",
        "int64: drift_stride rewire_every", "double: weight_decay", "int64: clock", "uint64: seed",
        "int32: index bound",
    )  # fmt: skip


class FusedRun(Structure):
    """Some steps in a row."""

    _fields_ = _fields(
        "int64: steps first_step n_layers n_wirings", "pointer: layers wirings", "rule: rule", "pointer: lr x",
        "int64: x_stride", "int32: x_is_bytes loss_kind", "float: scale shift", "pointer: labels targets",
        "int64: target_stride", "pointer: order batch loss born", "int64: born_stride", rule=Rule,
    )  # fmt: skip


class StackLayer(Structure):
    """A sparse layer and the function behind it."""

    _fields_ = _fields(
        "int64: n_in n_out budget", "pointer: colptr packed_rows theta bias", "int32: activation bound",
    )  # fmt: skip


class Conv(Structure):
    """A convolution of inputs of a certain size; pairs are height, width."""

    _fields_ = _fields(
        "int64: batch in_channels out_channels groups", "pair: in_size out_size kernel stride before dilation",
    )  # fmt: skip


class Recurrent(Structure):
    """One direction of a recurrent layer, and what goes in and comes out."""

    _fields_ = _fields(
        "int32: kind reverse", "int64: steps batch n_in n_hidden", "pointer: lengths",
        "int64: connections_ih connections_hh", "int32: bound",
        "pointer: colptr_ih packed_rows_ih theta_ih colptr_hh packed_rows_hh theta_hh bias_ih bias_hh x",
        "int64: x_time x_sample", "pointer: h_0 c_0 y", "int64: y_time y_sample", "pointer: h_n c_n kept",
    )  # fmt: skip


class RecurrentGradients(Structure):
    """What comes back to such a layer, and where its gradients go."""

    _fields_ = _fields(
        "pointer: dy", "int64: dy_time dy_sample", "pointer: dh_n dc_n dx", "int64: dx_time dx_sample",
        "pointer: dh_0 dc_0 dtheta_ih dtheta_hh dbias_ih dbias_hh sums h_before",
    )  # fmt: skip
