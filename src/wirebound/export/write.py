"""What all formats share when they write: limits, and a place that is complete or not there.

A small file can declare layers of any size. Some formats need whole matrices: they are bounded by what the model
holds, before anything is allocated.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from wirebound.checkpoint.atomic import WriteError, write_file
from wirebound.checkpoint.stack import most_outputs
from wirebound.export.layers import ExportError, Layer, Network

FREE_DENSE = 1 << 28  # bytes of all matrices together
DENSE_PER_BYTE = 4096  # beyond: for each byte of connections and biases
MOST_DENSE = (1 << 31) - 1  # what one ONNX file can hold


def require_dense(network: Network, form: str, way_out: str) -> None:
    """Refuse to write in full what is large as a matrix and small as connections."""
    dense, held = sum(4 * layer.n_out * layer.n_in for layer in network.weighted), _held(network)
    if dense > min(MOST_DENSE, max(FREE_DENSE, DENSE_PER_BYTE * held)):
        raise ExportError(
            f"{form} stores matrices in full, which takes {dense:,} bytes for a model of {held:,} bytes "
            f"({network.connections:,} connections of {network.possible:,} possible): {way_out}"
        )


def require_places(network: Network, form: str) -> None:
    """Refuse convolutions whose outputs are far more than the model holds and than its inputs are."""
    sizes = network.sizes
    if max(sizes) > most_outputs(sizes[0] + _held(network)):
        most = f"layers of this network give up to {max(sizes):,} numbers, far more than it holds"
        raise ExportError(f"{most}: that is too large for {form}")


def _held(network: Network) -> int:
    def bytes_of(layer: Layer) -> int:
        return 12 * len(layer) + (0 if layer.bias is None else layer.bias.nbytes)

    return sum(map(bytes_of, network.weighted))


def settle_place(path: str | os.PathLike[str], *, folder: bool = False) -> Path:
    """A path that a file, or a folder, can be written to; refused before any work is done."""
    place = Path(path)
    if place.is_dir() and not folder:
        raise ExportError(f"path (={place}) is a folder: give the name of a file in it")
    if folder and place.exists() and not place.is_dir():
        raise ExportError(f"folder (={place}) is a file: this format writes a folder, choose another name")
    for parent in place.parents:
        if parent.exists() and not parent.is_dir():
            raise ExportError(f"path (={place}) cannot be written: {parent} is a file, not a folder")
    return place


def write_pieces(place: Path, pieces: Iterable[bytes]) -> None:
    """Write a file, all of it or nothing; folders above it are made."""
    _make(place.parent)
    write_file(place, lambda stream: stream.writelines(pieces))


def write_folder(place: Path, write: Callable[[Path], None], last: str) -> None:
    """Let ``write`` fill a folder beside ``place``, and give it its name when it is complete.

    If the folder is there already, its other files stay, and file ``last`` is missing while the others are replaced.
    """
    _make(place.parent)
    try:
        beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        beside.mkdir()
        try:
            write(beside)
            if place.exists():
                (place / last).unlink(missing_ok=True)
                for file in sorted(beside.iterdir(), key=lambda file: file.name == last):
                    os.replace(file, place / file.name)
            else:
                os.replace(beside, place)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise WriteError(f"{place} cannot be written ({error.strerror or error}): choose another place") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"folder {folder} cannot be made ({error.strerror or error}): choose another place") from error
