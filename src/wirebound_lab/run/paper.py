"""What the paper reports for a run like this one, to be printed beside our figure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from wirebound_lab.run.config import TrainConfig

SOURCE = "Bellec, Kappel, Maass, Legenstein: Deep Rewiring, ICLR 2018"


@dataclass(frozen=True)
class Claim:
    """One figure of the paper."""

    claim: str
    data: str
    method: str
    connectivity: float
    epochs: int
    accuracy: float
    source: str = SOURCE


CLAIMS = (
    Claim("DEEP R reaches 96.2 % on MNIST at 1.3 % connectivity in 10 epochs", "mnist", "deep-r", 0.013, 10, 0.962),
    Claim("DEEP R reaches 96.3 % on MNIST at 1.0 % connectivity in 20 epochs", "mnist", "deep-r", 0.010, 20, 0.963),
)


def find_claim(config: TrainConfig, connectivity: float) -> dict[str, Any] | None:
    """The paper's figure for this data, method, network and connectivity, or None."""
    if config.hidden != [300, 100]:
        return None
    for claim in CLAIMS:
        same = (claim.data, claim.method) == (config.data, config.method)
        if same and abs(claim.connectivity - connectivity) < 5e-4:
            return asdict(claim)
    return None
