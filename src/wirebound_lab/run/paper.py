"""What the paper reports for a run like this one, to be printed beside our figure."""

from __future__ import annotations

from typing import Any

from wirebound_lab.run.config import RunConfig

SOURCE = "Bellec, Kappel, Maass, Legenstein: Deep Rewiring, ICLR 2018"
CLAIMS: tuple[dict[str, Any], ...] = tuple(
    {
        "claim": f"DEEP R reaches {100 * accuracy:.1f} % on MNIST at {100 * connectivity:.1f} % connectivity in {epochs} epochs",
        "data": "mnist", "method": "deep-r", "connectivity": connectivity, "epochs": epochs, "accuracy": accuracy,
        "source": SOURCE,
    }
    for connectivity, epochs, accuracy in ((0.013, 10, 0.962), (0.010, 20, 0.963))
)


def find_claim(config: RunConfig, connectivity: float) -> dict[str, Any] | None:
    """The paper's figure for this data, method, network and connectivity, or None."""
    for claim in CLAIMS:
        same = (claim["data"], claim["method"], [300, 100]) == (config.data, config.method, config.hidden)
        if same and abs(claim["connectivity"] - connectivity) < 5e-4:
            return dict(claim)
    return None
