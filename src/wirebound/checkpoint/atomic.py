"""Files that appear complete or not at all: written beside their place, synced, renamed, the folder synced."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".tmp"  # what a killed writer leaves; the next one takes it over


class WriteError(OSError):
    """A file could not be written; whatever had its name before is whole. The message says what to do."""


def write_file(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Give ``path`` this content, or what a function writes to a stream: all of it or nothing."""
    beside = path.with_name(path.name + SUFFIX)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(descriptor, "wb") as stream:
            # Two writers would mix their bytes. The file may also have got its final name between our opening it and
            # the lock: then it is not ours to cut.
            if not lock(stream.fileno()) or not same_file(stream.fileno(), beside):
                raise WriteError(f"{path} is being written by another process: give each its own name")
            try:
                os.ftruncate(stream.fileno(), 0)
                stream.write(content) if isinstance(content, bytes) else content(stream)
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(beside, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    beside.unlink()  # ours, while the lock holds
                raise
        sync_folder(path.parent)
    except WriteError:
        raise
    except OSError as error:
        advice = "what it held before is whole; make room, or choose another place"
        raise WriteError(f"{path} cannot be written ({error.strerror or error}): {advice}") from error


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file or folder still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def lock(descriptor: int) -> bool:
    """Take a lock that ends with this process, however it ends; False if another process has it."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # a platform or a file system without such locks
        pass
    return True
