"""The structs of ``csrc/wirebound.h`` as ctypes sees them, field by field in the same order."""

from __future__ import annotations

from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p


class Rule(Structure):
    """wb_rule: the optimiser's rule as numbers."""

    _fields_ = (
        ("kind", c_int32),
        ("nesterov", c_int32),
        ("fresh", c_int32),
        ("decoupled", c_int32),
        ("maximize", c_int32),
        ("bound", c_int32),
        ("clamp", c_int32),
        ("stream", c_uint32),
        ("seed", c_uint64),
        ("step", c_int64),
        ("clock", c_int64),
        ("lr", c_double),
        ("momentum", c_double),
        ("dampening", c_double),
        ("weight_decay", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
    )


class DriftAndNoise(Structure):
    """wb_drift_and_noise: shrink and noise of connections first .. last, and their part of the rates."""

    _fields_ = (
        ("first", c_int64),
        ("last", c_int64),
        ("shrink", c_double),
        ("noise_std", c_double),
        ("lr_factor", c_double),
        ("decay_factor", c_double),
        ("frozen", c_int32),
    )


class Carried(Structure):
    """wb_carried: an array that moves with its connections, and the bits that a newborn has there."""

    _fields_ = (("data", c_void_p), ("size", c_int64), ("fill", c_int64))


class Step(Structure):
    """wb_step: a whole step of one wiring."""

    _fields_ = (
        ("rule", Rule),
        ("budget", c_int64),
        ("layers", c_int64),
        ("n_in", c_void_p),
        ("n_out", c_void_p),
        ("colptr", c_void_p),
        ("packed_rows", c_void_p),
        ("theta", c_void_p),
        ("gradient", c_void_p),
        ("moment1", c_void_p),
        ("moment2", c_void_p),
        ("moment2_max", c_void_p),
        ("birth", c_void_p),
        ("drifts", c_void_p),
        ("n_drifts", c_int64),
        ("carried", c_void_p),
        ("n_carried", c_int64),
        ("shares", c_void_p),
        ("born", c_void_p),
        ("died", c_void_p),
        ("active", c_void_p),
        ("wiring_index", c_int32),
    )


class Parameter(Structure):
    """wb_parameter: a dense parameter and its optimiser state."""

    _fields_ = (
        ("data", c_void_p),
        ("moment1", c_void_p),
        ("moment2", c_void_p),
        ("moment2_max", c_void_p),
        ("weight_decay", c_double),
        ("step", c_int64),
    )


class FusedLayer(Structure):
    """wb_fused_layer: one layer of a stack."""

    _fields_ = (
        ("n_in", c_int64),
        ("n_out", c_int64),
        ("activation", c_int32),
        ("wiring", c_int32),
        ("part", c_int64),
        ("weight", Parameter),
        ("bias", Parameter),
    )


class FusedWiring(Structure):
    """wb_fused_wiring: a wiring, its optimiser state, and how it drifts and rewires."""

    _fields_ = (
        ("budget", c_int64),
        ("layers", c_int64),
        ("n_in", c_void_p),
        ("n_out", c_void_p),
        ("colptr", c_void_p),
        ("packed_rows", c_void_p),
        ("theta", c_void_p),
        ("moment1", c_void_p),
        ("moment2", c_void_p),
        ("moment2_max", c_void_p),
        ("born", c_void_p),
        ("shares", c_void_p),
        ("shrink", c_void_p),
        ("noise_std", c_void_p),
        ("drift_stride", c_int64),
        ("rewire_every", c_int64),
        ("weight_decay", c_double),
        ("clock", c_int64),
        ("seed", c_uint64),
        ("index", c_int32),
        ("bound", c_int32),
    )


class FusedRun(Structure):
    """wb_fused_run: some steps in a row."""

    _fields_ = (
        ("steps", c_int64),
        ("first_step", c_int64),
        ("n_layers", c_int64),
        ("n_wirings", c_int64),
        ("layers", c_void_p),
        ("wirings", c_void_p),
        ("rule", Rule),
        ("lr", c_void_p),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("x_is_bytes", c_int32),
        ("loss_kind", c_int32),
        ("scale", c_float),
        ("shift", c_float),
        ("labels", c_void_p),
        ("targets", c_void_p),
        ("target_stride", c_int64),
        ("order", c_void_p),
        ("batch", c_void_p),
        ("loss", c_void_p),
        ("born", c_void_p),
        ("born_stride", c_int64),
    )


class StackLayer(Structure):
    """wb_stack_layer: a sparse layer and the function behind it."""

    _fields_ = (
        ("n_in", c_int64),
        ("n_out", c_int64),
        ("budget", c_int64),
        ("colptr", c_void_p),
        ("packed_rows", c_void_p),
        ("theta", c_void_p),
        ("bias", c_void_p),
        ("activation", c_int32),
        ("bound", c_int32),
    )


class Conv(Structure):
    """wb_conv: a convolution of inputs of a certain size; pairs are height, width."""

    _fields_ = (
        ("batch", c_int64),
        ("in_channels", c_int64),
        ("out_channels", c_int64),
        ("groups", c_int64),
        ("in_size", c_int64 * 2),
        ("out_size", c_int64 * 2),
        ("kernel", c_int64 * 2),
        ("stride", c_int64 * 2),
        ("before", c_int64 * 2),
        ("dilation", c_int64 * 2),
    )


class Recurrent(Structure):
    """wb_recurrent: one direction of a recurrent layer, and what goes in and comes out."""

    _fields_ = (
        ("kind", c_int32),
        ("reverse", c_int32),
        ("steps", c_int64),
        ("batch", c_int64),
        ("n_in", c_int64),
        ("n_hidden", c_int64),
        ("lengths", c_void_p),
        ("connections_ih", c_int64),
        ("connections_hh", c_int64),
        ("bound", c_int32),
        ("colptr_ih", c_void_p),
        ("code_ih", c_void_p),
        ("theta_ih", c_void_p),
        ("colptr_hh", c_void_p),
        ("code_hh", c_void_p),
        ("theta_hh", c_void_p),
        ("bias_ih", c_void_p),
        ("bias_hh", c_void_p),
        ("x", c_void_p),
        ("x_time", c_int64),
        ("x_sample", c_int64),
        ("h_0", c_void_p),
        ("c_0", c_void_p),
        ("y", c_void_p),
        ("y_time", c_int64),
        ("y_sample", c_int64),
        ("h_n", c_void_p),
        ("c_n", c_void_p),
        ("kept", c_void_p),
    )


class RecurrentGradients(Structure):
    """wb_recurrent_gradients: what comes back to such a layer, and where its gradients go."""

    _fields_ = (
        ("dy", c_void_p),
        ("dy_time", c_int64),
        ("dy_sample", c_int64),
        ("dh_n", c_void_p),
        ("dc_n", c_void_p),
        ("dx", c_void_p),
        ("dx_time", c_int64),
        ("dx_sample", c_int64),
        ("dh_0", c_void_p),
        ("dc_0", c_void_p),
        ("dtheta_ih", c_void_p),
        ("dtheta_hh", c_void_p),
        ("dbias_ih", c_void_p),
        ("dbias_hh", c_void_p),
        ("sums", c_void_p),
        ("h_before", c_void_p),
    )
