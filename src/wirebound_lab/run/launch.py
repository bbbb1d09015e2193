"""Several processes on this machine that train together: started, watched, and a clear word about why one ended.

``torchrun`` does the same across machines; there, ``in_torchrun`` makes the process group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.processes import GRACE, POLL, PRELOAD, Child, Work, in_words

__all__ = ["PRELOAD", "RankFailedError", "in_torchrun", "launch"]

TIMEOUT = timedelta(minutes=10)  # a rank that is silent for longer is taken for dead; a dead one is noticed at once


class RankFailedError(RuntimeError):
    """A process of the job failed; the message says which and why."""


def launch(work: Work, arguments: tuple[Any, ...], processes: int, *, timeout: timedelta = TIMEOUT) -> int:
    """Call ``work(*arguments)`` in processes that form a group (gloo), and return the exit code of rank 0.

    ``work`` is a function of a module. If one process fails, the others are stopped. Ctrl-C and SIGTERM are passed on
    to rank 0 alone; the others end when it has left.
    """
    if processes < 1:
        raise ConfigError(f"processes (={processes}) must be >= 1")
    # The store lives here and has taken a free port already, so no two jobs can want the same one.
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)  # type: ignore[attr-defined]
    threads = max(1, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 1
    with tempfile.TemporaryDirectory(prefix="wirebound-") as folder:
        ranks: list[Child] = []
        try:
            # Starting takes seconds; who presses Ctrl-C then leaves no rank behind, for which this process would wait.
            for number in range(processes):
                job = (number, work, arguments, processes, store.port, timeout, threads)
                ranks.append(Child(_rank, job, Path(folder), str(number), hears=number == 0))
            with StopRequest() as stop:
                ended = _wait(ranks, stop)
        finally:
            for child in ranks:
                child.tell(signal.SIGKILL)
            for child in ranks:
                child.end()
        return _verdict(ranks, ended, stop)


def _rank(
    number: int, work: Work, arguments: tuple[Any, ...], processes: int, port: int, timeout: timedelta, threads: int
) -> int:
    torch.set_num_threads(threads)
    store = dist.TCPStore("127.0.0.1", port, None, False, timeout)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=number, world_size=processes, timeout=timeout)
    code = work(*arguments)
    dist.destroy_process_group()  # only if all went well: after a failure it could wait for ranks that are gone
    return code


@contextlib.contextmanager
def in_torchrun(timeout: timedelta = TIMEOUT) -> Iterator[None]:
    """The process group of ``torchrun``, if that started this process (gloo; the rest is in its environment)."""
    if not dist.is_torchelastic_launched() or dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", timeout=timeout)
    yield
    dist.destroy_process_group()  # as above, only if all went well


def _lost_contact(error: BaseException) -> bool:
    """Whether a failure only says that another rank has gone."""
    said = any(word in str(error).lower() for word in ("gloo", "peer", "socket", "timed out"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and said)


def _wait(ranks: list[Child], stop: StopRequest) -> dict[int, int]:
    """Exit codes by rank, once all have ended, or one has failed and the others have had their time to notice.

    A signal is passed on to rank 0, which ends as a single process would, perhaps with a checkpoint. Before rank 0 can
    hear it, there is nothing to keep, and the job ends at once.
    """
    deadline: float | None = None
    told = False
    while True:
        ended = {number: child.code for number, child in enumerate(ranks) if child.code is not None}
        if len(ended) == len(ranks) or (deadline is not None and time.monotonic() > deadline):
            return ended
        if deadline is None and any(ended.values()):
            deadline = time.monotonic() + GRACE
        if stop.signal is not None and not told and 0 not in ended:
            told = True
            if not ranks[0].listens:
                raise Interrupted("interrupted before the first step", 128 + stop.signal)
            ranks[0].tell(stop.signal)
        wait([child.sentinel for number, child in enumerate(ranks) if number not in ended], timeout=POLL)


def _verdict(ranks: list[Child], ended: dict[int, int], stop: StopRequest) -> int:
    """The exit code of the job, or an error about the process that failed first, as far as can be told.

    When one rank goes, the others lose contact and fail in turn: theirs is never the reason given.
    """
    of = len(ranks)
    errors = {number: error for number in ended if (error := ranks[number].error) is not None}
    if isinstance(errors.get(0), KeyboardInterrupt):
        raise Interrupted(str(errors[0]) or "interrupted", ended[0])
    if stop.signal is not None and ended.get(0) == -stop.signal:  # it came before rank 0 listened for it
        raise Interrupted("interrupted before the first step", 128 + stop.signal)
    for number, code in ended.items():
        if code < 0:
            raise RankFailedError(
                f"rank {number} of {of} was {in_words(code)}, and the other processes were stopped; the run can resume "
                "from its last checkpoint, with any number of them"
            )
    for number, error in sorted(errors.items(), key=lambda item: (_lost_contact(item[1]), item[0])):
        if number == 0 and isinstance(error, ValueError):
            raise ConfigError(str(error)) from error
        raise RankFailedError(f"rank {number} of {of} failed: {type(error).__name__}: {error}")
    return max(ended.values())
