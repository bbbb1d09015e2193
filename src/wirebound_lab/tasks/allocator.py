"""How memory that is freed is kept for the next step, in processes that train and do nothing else."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt
_MOST = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to give nothing back to the system; whether it listened.

    Every step of a convolutional or recurrent network makes and frees arrays of megabytes. Given back to the system
    and asked for again, each of their pages costs a fault: a third of the time and more in a virtual machine.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _MOST))
