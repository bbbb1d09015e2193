"""What all formats share when they write: limits, because a small file can declare layers of any size, and places."""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from wirebound.checkpoint.atomic import WriteError, write_file
from wirebound.checkpoint.stack import most_outputs
from wirebound.export.layers import Network, require

FREE_DENSE = 1 << 28  # bytes of all matrices together
DENSE_PER_BYTE = 4096  # beyond: for each byte of connections and biases
MOST_DENSE = (1 << 31) - 1  # what one ONNX file can hold
LIST = "network.json"  # of a folder: its layers


def require_dense(network: Network, form: str, way_out: str) -> None:
    """Refuse to write in full what is large as a matrix and small as connections."""
    dense, held = sum(4 * layer.n_out * layer.n_in for layer in network.weighted), _held(network)
    told = f"{network.connections:,} connections of {network.possible:,} possible"
    takes = f"{form} stores matrices in full, which takes {dense:,} bytes for a model of {held:,} bytes ({told})"
    require(dense <= min(MOST_DENSE, max(FREE_DENSE, DENSE_PER_BYTE * held)), f"{takes}: {way_out}")


def require_places(network: Network, form: str) -> None:
    """Refuse convolutions whose outputs are far more than the model holds and than its inputs are."""
    sizes = network.sizes
    most = f"layers of this network give up to {max(sizes):,} numbers, far more than it holds"
    require(max(sizes) <= most_outputs(sizes[0] + _held(network)), f"{most}: that is too large for {form}")


def _held(network: Network) -> int:
    biases = [layer.bias.nbytes for layer in network.weighted if layer.bias is not None]
    return 12 * network.connections + sum(biases)


def settle_place(path: str | os.PathLike[str], *, folder: bool = False) -> Path:
    """A path that a file, or a folder, can be written to; refused before any work is done."""
    place = Path(path)
    require(folder or not place.is_dir(), f"path (={place}) is a folder: give the name of a file in it")
    free = not folder or not place.exists() or place.is_dir()
    require(free, f"folder (={place}) is a file: this format writes a folder, choose another name")
    for parent in place.parents:
        usable = not parent.exists() or parent.is_dir()
        require(usable, f"path (={place}) cannot be written: {parent} is a file, not a folder")
    return place


def write_pieces(place: Path, pieces: Iterable[bytes]) -> None:
    """Write a file, all of it or nothing; folders above it are made."""
    _make(place.parent)
    write_file(place, lambda stream: stream.writelines(pieces))


def write_folder(place: Path, write: Callable[[Path], dict[str, Any]]) -> None:
    """Let ``write`` fill a folder beside ``place`` and say what ``LIST`` holds; it gets its name when it is complete."""
    _make(place.parent)
    try:
        beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        beside.mkdir()
        try:
            text = json.dumps(write(beside), indent=2)
            (beside / LIST).write_text(f"{text}\n", encoding="utf-8")
            if place.exists():  # its other files stay, and LIST is missing while the others are replaced
                (place / LIST).unlink(missing_ok=True)
                for file in sorted(beside.iterdir(), key=lambda file: file.name == LIST):
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
