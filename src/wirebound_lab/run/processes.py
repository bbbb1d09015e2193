"""Processes on this machine: Ctrl-C and SIGTERM in this one, and others that are started, watched and ended in one way.

``run_pool`` runs independent ones, for sweeps and figures; ``distributed.py`` has those that train together.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

# What the server of the children imports for all of them; torch's optimisers and DDP want the second, which is large.
PRELOAD = ["wirebound_lab.run.loop", "torch._dynamo"]
GRACE = 5.0  # seconds that children have to end by themselves
POLL = 0.2  # seconds
_TIME_TO_STOP = 60.0  # seconds that jobs have to write a checkpoint after Ctrl-C
_INTERRUPTED = 128 + signal.SIGINT
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt
_USUAL = {_TRIM_THRESHOLD: 128 << 10, _MMAP_MAX: 65536}  # glibc's own

Work = Callable[..., int]
Key = TypeVar("Key")


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and stopped with a checkpoint; the message says how to go on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code  # of the process: 128 + the number of the signal

    def __reduce__(self) -> tuple[type[Interrupted], tuple[str, int]]:
        return Interrupted, (str(self), self.code)


class StopRequest:
    """While this is open, a first signal is noted; a second one interrupts at once, as it always did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # who asked not to be disturbed is not
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise Interrupted("interrupted twice: the last checkpoint counts", 128 + number)
        self.signal = number

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class Child:
    """A function of a module in a process of its own; its exit code is what the function returns.

    A terminal's Ctrl-C does not reach it, ``tell`` does, where it ``hears`` SIGINT. It ends with this process, however
    that ends. It leaves notes in ``folder``, which must exist as long as it runs; if ``quiet``, also what it prints.
    """

    def __init__(
        self, work: Work, arguments: tuple[Any, ...], folder: Path, name: str, *, hears: bool = True, quiet: bool = False
    ) -> None:
        self._notes = str(folder / name)
        self._process = _context().Process(target=_child, args=(work, arguments, self._notes, hears, quiet), name=name)
        with _without_interrupts():
            self._process.start()
        self.sentinel: int = self._process.sentinel

    @property
    def code(self) -> int | None:
        """Its exit code, minus the signal that ended it, or None while it runs."""
        return self._process.exitcode

    @property
    def error(self) -> BaseException | None:
        """What ended it, if an error did."""
        path = Path(f"{self._notes}.error")
        return pickle.loads(path.read_bytes()) if path.exists() else None

    @property
    def said(self) -> str:
        """What a quiet child has printed."""
        path = Path(f"{self._notes}.txt")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def listens(self) -> bool:
        """Whether it has come so far that a signal is not lost."""
        return Path(f"{self._notes}.listens").exists()

    def tell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process.pid is not None and self.code is None:
                os.kill(self._process.pid, number)

    def end(self, seconds: float = 0.0) -> None:
        """Give it some time to end, then end it."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def in_words(code: int) -> str:
    """How a process ended that a signal has ended."""
    name = signal.Signals(-code).name
    return f"ended by {name}{' (often: out of memory)' if name == 'SIGKILL' else ''}"


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to give nothing back to the system; whether it listened.

    Arrays of megabytes that every step frees and asks for again cost page faults: a third of the time and more.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """``keep_freed_memory`` for a while, in a process that does other things too."""
    listened = keep_freed_memory()
    try:
        yield
    finally:
        if listened:
            library = ctypes.CDLL(None)
            for parameter, value in _USUAL.items():
                library.mallopt(parameter, value)
            library.malloc_trim(0)


def _context() -> Any:
    """A server that has imported torch once and forks the children, where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    # The server is in our process group: a terminal's Ctrl-C must not end it while it imports.
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)
    return context


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C comes after the block: a child that was half told what to do would end with a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _child(work: Work, arguments: tuple[Any, ...], notes: str, hears: bool, quiet: bool) -> None:
    if not os.path.isdir(os.path.dirname(notes)):
        os._exit(_INTERRUPTED)  # the parent was interrupted while this child was being started
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which tells its children
    signal.signal(signal.SIGINT, signal.default_int_handler if hears else signal.SIG_IGN)
    Path(notes + ".listens").touch()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if quiet:
        output = os.open(notes + ".txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
    try:
        code = work(*arguments)
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("WIREBOUND_DEBUG"):
            traceback.print_exc()
        code = 2 if isinstance(error, ValueError) else 1
        if isinstance(error, KeyboardInterrupt):
            code = getattr(error, "code", _INTERRUPTED)
        Path(notes + ".error").write_bytes(_pickled(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of gloo may still wait for a peer that is gone


def _pickled(error: BaseException) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # some can be written and not be read
        return content
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def _end_with_parent() -> None:
    """A run writes a checkpoint first."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)


def run_pool(
    take: Callable[[], tuple[Key, Child] | None], jobs: int, ended: Callable[[Key, Child], None],
    tick: Callable[[Sequence[Key]], None] = lambda running: None,
) -> None:  # fmt: skip
    """Run what ``take`` gives, ``jobs`` at a time, until it has nothing more; after Ctrl-C all are interrupted first."""
    running: list[tuple[Key, Child]] = []
    try:
        while True:
            while len(running) < jobs and (started := take()) is not None:
                running.append(started)
            tick([key for key, _ in running])
            if not running:
                return
            wait([child.sentinel for _, child in running], timeout=POLL)
            for pair in [pair for pair in running if pair[1].code is not None]:
                running.remove(pair)
                ended(*pair)
    except KeyboardInterrupt:
        for _, child in running:
            child.tell(signal.SIGINT if child.listens else signal.SIGKILL)  # one that is being started has nothing to keep
        deadline = time.monotonic() + _TIME_TO_STOP
        for key, child in running:
            child.end(max(0.0, deadline - time.monotonic()))
            ended(key, child)
        raise
    finally:
        for _, child in running:
            child.end()
