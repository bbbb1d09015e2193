"""How much each input counts, read off the wiring."""

from __future__ import annotations

import numpy as np

from wirebound.export.network import Network


def path_strength(network: Network) -> np.ndarray:
    """For each input, the sum over all paths to all outputs of the product of |weights| on the path; their sum is 1.

    An input without a connection has exactly 0, and so has one whose paths all end in units without an output.
    """
    strength = np.ones(network.sizes[-1])
    for layer in reversed(network.weighted):
        strength = abs(layer.matrix().astype(np.float64)).T @ strength
    total = strength.sum()
    return strength / total if total > 0 else strength
