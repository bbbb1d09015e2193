"""Named settings to start from. ``paper`` is the paper's; ``recommended`` and ``thorough`` are ours, chosen on validation
data: ``wirebound_lab.paper`` holds the alternatives that were compared, results/mnist/choice what came out."""

from __future__ import annotations

from typing import Any

_OURS = {"schedule": "cosine", "final_lr": 0.001, "init": "sparse-fan-in", "allocation": "erdos-renyi", "bias": True}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "recommended": {**_OURS, "epochs": 30, "lr": 1.4, "batch_size": 20},
    # The same for who can wait: larger batches take half the steps.
    "thorough": {**_OURS, "epochs": 200, "lr": 2.0, "batch_size": 50},
}


def preset(name: str) -> dict[str, Any]:
    return dict(PRESETS[name])
