"""What the numbers were measured on."""

import os
import platform
from contextlib import suppress
from pathlib import Path

import torch

from wirebound.ops import library
from wirebound.version import __version__


def processor() -> str:
    """The processor's own name where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def load() -> float | None:
    """Processes that wanted a core in the last minute: other work disturbs the numbers."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def describe() -> dict[str, object]:
    """Machine, versions and kernels, for the record; a warning where other work was running as we began."""
    before = load()
    warning = (
        f"Other work was running (load {before or 0:.1f} on {cores()} cores): contenders are disturbed unequally, and "
        "goals may be met or missed by chance. Measure again on a quiet machine."
    )
    return {
        "processor": processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": before,
        "warning": warning if before is not None and before >= 0.5 else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "wirebound": __version__,
        "kernels": library.isa() or f"pure torch: {library.reason()}",
    }
