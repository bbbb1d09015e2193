"""Where the time of a training step goes, by torch's profiler, in groups that a reader knows."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from torch.profiler import ProfilerActivity, profile

UPDATE = "optimiser and rewiring"
# What the profiler calls an operation contains one of these words; the first group that fits counts it.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "sparse products": ("_SparseProduct",),
    "dense products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("scaled_dot_product", "flash_attention"),
    "norms": ("layer_norm",),
    "activation": ("gelu", "relu", "threshold"),
    "gradient of biases": ("aten::sum",),
}
OTHER = "all else: embedding, loss, copies, additions"


def profile_steps(step: Callable[[], object], count: int = 1) -> dict[str, float]:
    """Seconds of CPU in each group, of one step in the mean of ``count``; as many others run before, watched by nobody."""
    step()
    began = time.process_time()
    for _ in range(count):
        step()
    alone = (time.process_time() - began) / count
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(count):
            step()
    seconds = dict.fromkeys([*GROUPS, UPDATE, OTHER], 0.0)
    for event in found.events() or ():
        seconds[_group(event)] += event.self_cpu_time_total / 1e6
    # Watching costs time itself: shares are the profiler's, the whole is that of steps that nobody watched.
    whole = sum(seconds.values())
    return {group: alone * part / whole for group, part in seconds.items()} if whole else seconds


def _group(event: Any) -> str:
    outer = event
    while outer is not None:
        if "Optimizer.step" in outer.name:  # with all that happens inside of it
            return UPDATE
        outer = outer.cpu_parent
    return next((name for name, words in GROUPS.items() if any(word in event.name for word in words)), OTHER)
