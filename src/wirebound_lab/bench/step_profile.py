"""Where the time of a training step goes, by torch's profiler, in groups that a reader knows."""

import time
from collections.abc import Callable, Mapping

from torch.profiler import ProfilerActivity, profile

# What the profiler calls an operation contains one of these words; the first group that fits counts it.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "sparse products": ("_SparseProduct",),
    "attention": ("scaled_dot_product", "flash_attention"),
    "norms": ("layer_norm",),
    "activation": ("gelu", "relu", "threshold"),
    "AdamW and rewiring": ("Optimizer.step",),
    "gradient of biases": ("aten::sum",),
    "embedding, softmax, loss": ("embedding", "softmax", "nll_loss", "eye"),
}
OTHER = "copies, additions, torch's own overhead"


def profile_step(step: Callable[[], object], before: int = 1) -> dict[str, float]:
    """Seconds of CPU in each group during one step; ``before`` so many others, to warm up, and one that is timed alone."""
    for _ in range(before):
        step()
    began = time.process_time()
    step()
    alone = time.process_time() - began
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    seconds = dict.fromkeys([*GROUPS, OTHER], 0.0)
    for event in found.key_averages():
        group = next((name for name, words in GROUPS.items() if any(word in event.key for word in words)), OTHER)
        seconds[group] += event.self_cpu_time_total / 1e6
    # Watching costs time itself: shares are the profiler's, the whole is that of a step that nobody watched.
    whole = sum(seconds.values())
    return {group: alone * part / whole for group, part in seconds.items()} if whole else seconds
