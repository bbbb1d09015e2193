"""Finds, loads and describes the native library; the table below is its whole interface.

``load()`` gives the library or None, and ``reason()`` says why it is None. ``WIREBOUND_NATIVE=0`` turns the library off,
``WIREBOUND_ISA=baseline`` (or ``v3``) asks for a lower instruction set than the processor has.
"""

import ctypes
import functools
import os
import warnings
from pathlib import Path

ABI_VERSION = 10
PATH = Path(__file__).resolve().parent.parent / "_native" / "libwirebound.so"

INT, UINT, LONG, ULONG = ctypes.c_int, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
POINTER, TEXT = ctypes.c_void_p, ctypes.c_char_p

# The functions of csrc/kernels.def, which says what they do: name (a star stands for f32 and f64), result, arguments.
_LETTERS = {"i": INT, "u": UINT, "l": LONG, "U": ULONG, "p": POINTER, "t": TEXT, "-": None}
_TABLE = """
    wb_abi_version          i
    wb_isa                  t
    wb_linear_forward_*     i  p l p l l l l l p p p i p i
    wb_linear_backward_*    i  p l p l p l p l l l l p p p i
    wb_csr_forward_*        i  p p p l l p l l l p p p i p i
    wb_csr_backward_*       i  p p p l l p l p l l l p p p p i
    wb_dense_forward_*      i  p l p l l l l l p p p i p i
    wb_dense_backward_*     i  p l p l p l p l l l l p p p i
    wb_linear_forward_packed_*  i  p
    wb_linear_backward_packed_* i  p
    wb_expand_columns_*     i  l l l p p p i l l p
    wb_gather_columns_*     i  l l l p p l l p p
    wb_conv_forward_*       i  p p p l p p p i p i
    wb_conv_backward_*      i  p p p p p l p p p i
    wb_winograd_forward_*   i  p p p l p p p i p i
    wb_winograd_backward_*  i  p p p p p l p p p i
    wb_stem_forward_*       i  p p p p p p p i
    wb_stem_backward_*      i  p p p p p p p i
    wb_norm_pool_forward_*  i  p p p p i
    wb_norm_pool_backward_* i  p p p p p i
    wb_cut_pieces           i  p p p p p p p p i
    wb_words                -  U u U l p
    wb_normals              -  U u U l l p
    wb_signs                -  U u p l p
    wb_sample_sorted        i  l l U u U p
    wb_update_*             l  p l p p p p p p p l p l i
    wb_dead_*               l  p l p l
    wb_all_finite_*         i  p l
    wb_rewire               l  l l p p p p p l p l U i l p p p i
    wb_wiring_is_good       i  l l p p p p
    wb_find                 -  l p p p p p l p
    wb_positions_at         -  l p p p p p l p
    wb_step_*               l  p i
    wb_fused_steps_f32      l  p p
    wb_stack_forward_f32    i  p l p l l p p l
    wb_stack_backward_f32   i  p l p l l p p l p l p
    wb_stack_forward_packed_f32  i  p
    wb_stack_backward_packed_f32 i  p
    wb_recurrent_forward_*  i  p i i
    wb_recurrent_backward_* i  p p i i
"""
PROTOTYPES = {
    name: (_LETTERS[result], [_LETTERS[letter] for letter in arguments])
    for name, result, *arguments in map(str.split, _TABLE.strip().splitlines())
}


def _open() -> ctypes.CDLL:
    """The library with the types of every function of the table; a missing one is an AttributeError."""
    library = ctypes.CDLL(str(PATH))
    for pattern, (result, arguments) in PROTOTYPES.items():
        for name in {pattern.replace("*", precision) for precision in ("f32", "f64")}:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    if (found := library.wb_abi_version()) != ABI_VERSION:
        raise OSError(f"interface version (={found}) must be {ABI_VERSION}")
    return library


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library and an empty reason, or None and the reason."""
    if os.environ.get("WIREBOUND_NATIVE", "1") == "0":
        return None, "are turned off by WIREBOUND_NATIVE=0"
    how = "install a C++ compiler (c++, g++ or clang++), then wirebound again with pip's --force-reinstall --no-cache-dir"
    why = f"were not built ({PATH.name} is missing): {how}"
    if PATH.exists():
        try:
            return _open(), ""
        except (OSError, AttributeError) as error:
            why = f"failed to load: {error}: reinstall wirebound"
    # Without it everything would be slow without a word, and pip hides what the build said: say so once.
    slow = "until then plain torch operations do their work, many times slower"
    asked = "WIREBOUND_NATIVE=0 asks for plain torch, without this warning"
    warnings.warn(f"the native kernels of wirebound {why}; {slow}; {asked}", RuntimeWarning, stacklevel=2)
    return None, why


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
