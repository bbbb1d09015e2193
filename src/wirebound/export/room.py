"""How much a model may ask for that it does not hold: a small file can declare layers of any size.

Formats need a number for each row of a layer, and some of them whole matrices. Both are bounded by what the model has,
before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable

from wirebound.checkpoint.stack_state import most_outputs
from wirebound.export.errors import ExportError
from wirebound.export.layers import Layer, Network

FREE_DENSE = 1 << 28  # bytes of all matrices together
DENSE_PER_BYTE = 4096  # beyond: for each byte of connections and biases
MOST_DENSE = (1 << 31) - 1  # what one ONNX file can hold


def require_outputs(outputs: Iterable[tuple[str, int]], held: int) -> None:
    """Refuse layers (how they are called, outputs) with far more outputs than the model has weights and biases."""
    listed = list(outputs)
    total = sum(n_out for _, n_out in listed)
    if total > most_outputs(held):
        widest, most = max(listed, key=lambda item: item[1])
        raise ExportError(
            f"the layers have {total:,} outputs ({widest}: {most:,}), but the model holds only {held:,} weights and "
            f"biases: at most {most_outputs(held):,} outputs can be written"
        )


def require_dense(network: Network, form: str, way_out: str) -> None:
    """Refuse to write in full what is large as a matrix and small as connections."""
    dense = sum(4 * layer.n_out * layer.n_in for layer in network.weighted)
    held = sum(_held(layer) for layer in network.weighted)
    if dense > min(MOST_DENSE, max(FREE_DENSE, DENSE_PER_BYTE * held)):
        raise ExportError(
            f"{form} stores matrices in full, which takes {dense:,} bytes for a model of {held:,} bytes "
            f"({network.connections:,} connections of {network.possible:,} possible): {way_out}"
        )


def require_places(network: Network, form: str) -> None:
    """Refuse convolutions whose outputs are far more than the model holds and than its inputs are."""
    sizes = network.sizes
    if max(sizes) > most_outputs(sizes[0] + sum(_held(layer) for layer in network.weighted)):
        raise ExportError(
            f"layers of this network give up to {max(sizes):,} numbers, far more than it holds: that is too large for {form}"
        )


def _held(layer: Layer) -> int:
    return 12 * len(layer) + (0 if layer.bias is None else layer.bias.nbytes)
