"""What the numbers were measured on, and the kind of processor that it counts as."""

import os
import platform
from contextlib import suppress
from pathlib import Path

import torch

from wirebound.ops import library
from wirebound.version import __version__

ON = "-on-"
_KERNELS = {"v4": "avx512", "v3": "avx2", None: "plain-torch"}
_TORCH = {"AVX512": "avx512", "AVX2": "avx2"}


def kind() -> str:
    """``avx512``, ``avx2``, ``neon`` or ``baseline``: what our kernels and dense torch run on; where these differ, as with
    ``WIREBOUND_ISA=v3`` on an AVX-512 machine, both: ``avx2-on-avx512``."""
    isa = library.isa()
    ours = _KERNELS.get(isa, str(isa))
    arm = platform.machine().lower() in ("arm64", "aarch64")
    dense = _TORCH.get(torch.backends.cpu.get_cpu_capability(), "neon" if arm else "baseline")
    return ours if ours == dense else f"{ours}{ON}{dense}"


def processor() -> str:
    """The processor's own name where the system tells it, with family and model: clouds call many by one name."""
    said: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            said.setdefault(name.strip(), value.strip())
    if "model name" not in said:
        return platform.processor() or platform.machine()
    numbers = [f"{word} {said[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in said]
    return f"{said['model name']} ({', '.join(numbers)})" if numbers else said["model name"]


def caches() -> str | None:
    """Sizes of the first core's caches for data, where the system tells them."""
    found = []
    with suppress(OSError):
        for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            kind, level, size = ((place / name).read_text(encoding="ascii").strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                found.append(f"L{level} {size}")
    return ", ".join(found) or None


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
    return {
        "kind": kind(),
        "processor": processor(),
        "caches": caches(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": before,
        "warning": _busy(before, 0),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "wirebound": __version__,
        "kernels": library.isa() or f"pure torch: {library.reason()}",
    }


def describe_after(about: dict[str, object], threads: int) -> dict[str, object]:
    """The same after a run on so many threads, with a warning also where other work began in the meantime."""
    after = load()
    return {**about, "load_after": after, "warning": about["warning"] or _busy(after, threads)}


def _busy(found: float | None, own: int) -> str | None:
    """A warning where more than ``own`` processes wanted a core. The slower contender, usually dense torch, suffers more:
    it never finds as long a quiet moment as it needs, so ratios come out too good."""
    if found is None or found < own + 0.5:
        return None
    return (
        f"Other work was running (load {found:.1f} on {cores()} cores, {own} our own): slow contenders are disturbed more than "
        "quick ones, and goals may be met or missed by chance. Measure again on a quiet machine."
    )
