"""The structs of ``csrc/wirebound.h`` as ctypes sees them, field by field in the same order."""

from __future__ import annotations

from ctypes import Structure, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p


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
        ("lr", c_double),
        ("momentum", c_double),
        ("dampening", c_double),
        ("weight_decay", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
    )


class Walk(Structure):
    """wb_walk: shrink and noise of connections first .. last."""

    _fields_ = (("first", c_int64), ("last", c_int64), ("shrink", c_double), ("noise_std", c_double))


class Rider(Structure):
    """wb_rider: an array that moves with its connections, and the bits that a newborn has there."""

    _fields_ = (("data", c_void_p), ("size", c_int64), ("fill", c_int64))
