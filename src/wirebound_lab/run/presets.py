"""Named settings to start from. ``paper`` is the paper's; ``recommended`` and ``thorough`` are
ours, chosen on validation data."""

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
    # The same for who can wait: 200 epochs, and larger batches, which take half the steps.
    "thorough": {
        "epochs": 200,
        "lr": 2.0,
        "batch_size": 50,
        "schedule": "cosine",
        "final_lr": 0.001,
        "init": "sparse-fan-in",
        "allocation": "erdos-renyi",
        "bias": True,
    },
}


def preset(name: str) -> dict[str, Any]:
    return dict(PRESETS[name])
