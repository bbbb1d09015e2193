"""Named settings to start from. ``paper`` is the paper's; ``recommended`` is ours, chosen on validation data."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # experiments/mnist_choice.py holds the alternatives that were compared, results/mnist/choice what came out.
    "recommended": {
        "epochs": 30,
        "lr": 1.4,
        "batch_size": 20,
        "schedule": "cosine",
        "final_lr": 0.001,
        "init": "sparse-fan-in",
        "allocation": "erdos-renyi",
        "bias": True,
    },
}


def preset(name: str) -> dict[str, Any]:
    return dict(PRESETS[name])
