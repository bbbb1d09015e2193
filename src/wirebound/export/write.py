"""Where exports go: a file or a folder that is complete under its name, or not there."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from wirebound.checkpoint.atomic import write_file
from wirebound.checkpoint.errors import WriteError
from wirebound.export.errors import ExportError


def file_place(path: str | os.PathLike[str]) -> Path:
    """A path that a file can be written to; refused before any work is done."""
    place = Path(path)
    if place.is_dir():
        raise ExportError(f"path (={place}) is a folder: give the name of a file in it")
    _require_parents(place)
    return place


def folder_place(folder: str | os.PathLike[str]) -> Path:
    """A path that a folder can be written to; refused before any work is done."""
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ExportError(f"folder (={place}) is a file: this format writes a folder, choose another name")
    _require_parents(place)
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


def _require_parents(place: Path) -> None:
    for parent in place.parents:
        if parent.exists() and not parent.is_dir():
            raise ExportError(f"path (={place}) cannot be written: {parent} is a file, not a folder")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"folder {folder} cannot be made ({error.strerror or error}): choose another place") from error
