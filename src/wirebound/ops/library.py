"""Finds, loads and describes the native library; the table below is its whole interface.

``load()`` gives the library or None, and ``reason()`` says why it is None. Setting ``WIREBOUND_NATIVE=0`` turns the
library off, ``WIREBOUND_ISA=baseline`` (or ``v3``) asks for a lower instruction set than the processor has.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from pathlib import Path

ABI_VERSION = 3
PATH = Path(__file__).resolve().parent.parent / "_native" / "libwirebound.so"

INT, UINT, LONG, ULONG = ctypes.c_int, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
POINTER, TEXT = ctypes.c_void_p, ctypes.c_char_p

# A layer, as the kernels see it: connections, colptr, packed_rows, theta.
LAYER = [LONG, POINTER, POINTER, POINTER]
# An activation: address, stride between samples.
ROWS = [POINTER, LONG]

# name: (result, arguments), in the order of csrc/wirebound.h. "{}" stands for f32 and f64.
PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    # library
    "wb_abi_version": (INT, []),
    "wb_isa": (TEXT, []),
    # linear: x, y, batch, n_in, n_out, layer, bound, bias, threads / x, dy, dx, dtheta, batch, n_in, n_out, layer, threads
    "wb_linear_forward_{}": (INT, [*ROWS, *ROWS, LONG, LONG, LONG, *LAYER, INT, POINTER, INT]),
    "wb_linear_backward_{}": (INT, [*ROWS, *ROWS, *ROWS, POINTER, LONG, LONG, LONG, *LAYER, INT]),
    # conv: shape, x, y, layer, bound, bias, threads / shape, x, dy, dx, dtheta, layer, threads
    "wb_conv_forward_{}": (INT, [*[POINTER] * 3, *LAYER, INT, POINTER, INT]),
    "wb_conv_backward_{}": (INT, [*[POINTER] * 5, *LAYER, INT]),
    # random: seed, stream, step, ...
    "wb_words": (None, [ULONG, UINT, ULONG, LONG, POINTER]),
    "wb_normals": (None, [ULONG, UINT, ULONG, LONG, LONG, POINTER]),
    "wb_signs": (None, [ULONG, UINT, POINTER, LONG, POINTER]),
    "wb_sample_sorted": (INT, [LONG, LONG, ULONG, UINT, ULONG, POINTER]),
    # update: rule, n, theta, gradient, moments (2), moment2_max, born, drifts, n_drifts, dead, capacity, threads
    "wb_update_{}": (LONG, [POINTER, LONG, *[POINTER] * 7, LONG, POINTER, LONG, INT]),
    "wb_dead_{}": (LONG, [POINTER, LONG, POINTER, LONG]),
    "wb_all_finite_{}": (INT, [POINTER, LONG]),
    # rewire: budget, layers, n_in, n_out, colptr, packed_rows, carried, n, dead, n, seed, index, step, shares, born, died, threads
    "wb_rewire": (
        LONG,
        [LONG, LONG, *[POINTER] * 5, LONG, POINTER, LONG, ULONG, INT, LONG, *[POINTER] * 3, INT],
    ),
    "wb_wiring_is_good": (INT, [LONG, LONG, *[POINTER] * 4]),
    # step: task, threads
    "wb_step_{}": (LONG, [POINTER, INT]),
    # fused step: run, status
    "wb_fused_steps_f32": (LONG, [POINTER, POINTER]),
    # stack: layers, n, x, batch, kept, y / layers, n, x, batch, kept, dy, dx, gradients
    "wb_stack_forward_f32": (INT, [POINTER, LONG, *ROWS, LONG, POINTER, *ROWS]),
    "wb_stack_backward_f32": (INT, [POINTER, LONG, *ROWS, LONG, POINTER, *ROWS, *ROWS, POINTER]),
    # recurrent: task, threads / task, gradients, threads
    "wb_recurrent_forward_{}": (INT, [POINTER, INT]),
    "wb_recurrent_backward_{}": (INT, [POINTER, POINTER, INT]),
}


def _declare(library: ctypes.CDLL) -> None:
    """Gives every function of the table its types; a missing one is an AttributeError."""
    for pattern, (result, arguments) in PROTOTYPES.items():
        names = [pattern.format(kind) for kind in ("f32", "f64")] if "{}" in pattern else [pattern]
        for name in names:
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments


def _missed(reason: str, advice: str) -> str:
    """Without the library everything would be slow without a word, and pip hides what the build said: say so once.

    Who wants plain torch sets WIREBOUND_NATIVE=0 and is not told; it is a RuntimeWarning, so filters apply too.
    """
    warnings.warn(
        f"the native kernels of wirebound {reason}, so plain torch operations do their work, many times slower: {advice}; "
        "WIREBOUND_NATIVE=0 asks for plain torch, without this warning",
        RuntimeWarning,
        stacklevel=2,
    )
    return f"{reason}: {advice}"


def _failed(error: str) -> str:
    return _missed(f"failed to load: {error}", "reinstall wirebound")


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library and an empty reason, or None and the reason."""
    if os.environ.get("WIREBOUND_NATIVE", "1") == "0":
        return None, "are turned off by WIREBOUND_NATIVE=0"
    if not PATH.exists():
        how = "install a C++ compiler (c++, g++ or clang++), then wirebound again with pip's --force-reinstall --no-cache-dir"
        return None, _missed(f"were not built ({PATH.name} is missing)", how)
    try:
        library = ctypes.CDLL(str(PATH))
        _declare(library)
    except (OSError, AttributeError) as error:
        return None, _failed(str(error))
    found = library.wb_abi_version()
    if found != ABI_VERSION:
        return None, _failed(f"interface version (={found}) must be {ABI_VERSION}")
    return library, ""


def load() -> ctypes.CDLL | None:
    """The native library, loaded once per process, or None; then ``reason()`` says why."""
    return _load()[0]


def reason() -> str:
    """Why the native library is not in use; empty when it is."""
    return _load()[1]


def isa() -> str | None:
    """The instruction set the kernels run on ("baseline", "v3", "v4" or "neon"), or None without the library."""
    library = load()
    return None if library is None else library.wb_isa().decode()
