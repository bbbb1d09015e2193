"""Files that appear complete or not at all: written beside their place, synced, renamed, the folder synced.

After a crash at any moment the name holds the old content or the new one, and both have reached the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from wirebound.checkpoint.errors import WriteError

SUFFIX = ".tmp"  # what a killed writer leaves; the next one takes it over


def write_file(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Give ``path`` the content that ``write`` produces, all of it or nothing."""
    beside = path.with_name(path.name + SUFFIX)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(descriptor, "wb") as stream:
            _claim(stream, beside, path)
            try:
                os.ftruncate(stream.fileno(), 0)
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(beside, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    beside.unlink()  # ours, while the claim holds
                raise
        sync_folder(path.parent)
    except _Claimed as error:
        raise WriteError(str(error)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "what it held before is whole; make room, or choose another place"
        raise WriteError(f"{path} cannot be written ({reason}): {advice}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as their content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Claimed(OSError):
    pass


def _claim(stream: BinaryIO, beside: Path, path: Path) -> None:
    """Two writers of one name would mix their bytes: the second is refused."""
    # The file may have got its final name between our opening it and the lock: then it is not ours to cut.
    if not lock(stream.fileno()) or not same_file(stream.fileno(), beside):
        raise _Claimed(f"{path} is being written by another process: give each its own name")


def same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file or folder still has this name."""
    try:
        here, there = os.fstat(descriptor), os.stat(path)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def lock(descriptor: int) -> bool:
    """Take a lock that ends with this process, however it ends; False if another process has it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this platform
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
