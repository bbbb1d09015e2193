"""Where a data set is looked for on this machine: the given path, WIREBOUND_DATA, the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import Attempt, DataError
from .kind import Kind

VARIABLE = "WIREBOUND_DATA"


@dataclass(frozen=True)
class Place:
    """A folder that holds all files of a data set; ``cached`` if it is our own cache."""

    folder: Path
    how: str
    cached: bool = False

    def __str__(self) -> str:
        return f"{self.folder} ({self.how})"


def search(kind: Kind[object], path: str | os.PathLike[str] | None) -> Iterator[Place | Attempt]:
    """The places to look at, in order: a Place if the files are there, else an Attempt that says why not.

    A path that was given is the only place: falling back to another copy would hide a mistyped path.
    """
    if path is not None:
        yield _look(kind, Path(path).expanduser(), "path")
        return
    variable = os.environ.get(VARIABLE)
    if variable:
        yield _look(kind, Path(variable).expanduser(), VARIABLE)
    else:
        yield Attempt(VARIABLE, "is not set")
    folder = cache_folder(kind)
    lacking = kind.missing(folder)
    if lacking:
        yield Attempt(f"{folder} (cache)", _lacks(folder, folder, lacking))
    else:
        yield Place(folder, "cache", cached=True)


def _look(kind: Kind[object], base: Path, how: str) -> Place | Attempt:
    """Look for the files in ``base`` and in the subfolders where they usually are."""
    candidates = [base / name for name in kind.SUBFOLDERS] + [base]
    lacking = {folder: kind.missing(folder) for folder in candidates}
    for folder in candidates:
        if not lacking[folder]:
            return Place(folder, how)
    # Speak of the folder that comes nearest.
    folder = min((f for f in candidates if os.path.isdir(f)), key=lambda f: len(lacking[f]), default=base)
    return Attempt(f"{base} ({how})", _lacks(base, folder, lacking[folder]))


def _lacks(base: Path, folder: Path, lacking: list[str]) -> str:
    if not os.path.isdir(base):
        return "is not a folder" if os.path.exists(base) else "does not exist"
    inside = "" if folder == base else f"{folder.relative_to(base)} in it "
    return f"{inside}lacks {', '.join(lacking)}"


def cache_folder(kind: Kind[object]) -> Path:
    """The data set's folder in the user's cache, where the platform keeps such things."""
    return _user_cache() / "wirebound" / kind.source().name


def _user_cache() -> Path:
    variable = {"win32": "LOCALAPPDATA", "darwin": None}.get(sys.platform, "XDG_CACHE_HOME")
    value = os.environ.get(variable, "") if variable else ""
    if value and Path(value).is_absolute():  # a relative one is invalid, by the XDG specification
        return Path(value)
    try:
        home = Path.home()
    except RuntimeError as error:
        raise DataError(f"user cache: the home folder must be known ({error})") from error
    return home / {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
