"""Several processes on this machine that train together: start them, watch them, say clearly why one ended.

``torchrun`` does the same across machines; there, ``in_torchrun`` makes the process group.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.interrupt import Interrupted, StopRequest

TIMEOUT = timedelta(minutes=10)  # a rank that is silent for longer is taken for dead; a dead one is noticed at once
# What the server of the ranks imports for all of them; torch's optimisers and DDP want the second, which is large.
PRELOAD = ["wirebound_lab.run.loop", "torch._dynamo"]
_GRACE = 5.0  # seconds that the others have to end by themselves
_INTERRUPTED = 130
_READY = "ready"

Work = Callable[..., int]


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
    context = _context()
    threads = max(1, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 1
    with tempfile.TemporaryDirectory(prefix="wirebound-") as notes:
        job = (work, arguments, processes, store.port, timeout, threads, notes)
        ranks = [context.Process(target=_rank, args=(number, *job), name=f"rank {number}") for number in range(processes)]
        try:
            # Starting takes seconds; who presses Ctrl-C then leaves no rank behind, for which this process would wait.
            for process in ranks:
                process.start()
            with StopRequest() as stop:
                ended = _wait(ranks, stop, Path(notes))
        finally:
            _stop(ranks)
        return _verdict(ended, processes, Path(notes), stop)


@contextlib.contextmanager
def in_torchrun(timeout: timedelta = TIMEOUT) -> Iterator[None]:
    """The process group of ``torchrun``, if that started this process (gloo; the rest is in its environment)."""
    if not dist.is_torchelastic_launched() or dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", timeout=timeout)
    yield
    dist.destroy_process_group()  # as below, only if all went well


def _context() -> Any:
    """A server that has imported torch once and forks the ranks, where there is one."""
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


# In a rank


def _rank(
    number: int,
    work: Work,
    arguments: tuple[Any, ...],
    processes: int,
    port: int,
    timeout: timedelta,
    threads: int,
    notes: str,
) -> None:
    """What a process of the job does."""
    if not os.path.isdir(notes):
        os._exit(_INTERRUPTED)  # the job was interrupted while this rank was being started
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the job's own process alone, which tells rank 0
    signal.signal(signal.SIGINT, signal.default_int_handler if number == 0 else signal.SIG_IGN)
    if number == 0:
        Path(notes, _READY).touch()  # from here on a signal is not lost
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    code = 1
    try:
        store = dist.TCPStore("127.0.0.1", port, None, False, timeout)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=number, world_size=processes, timeout=timeout)
        code = work(*arguments)
        dist.destroy_process_group()  # only if all went well: after a failure it could wait for ranks that are gone
    except KeyboardInterrupt as error:
        code = error.code if isinstance(error, Interrupted) else _INTERRUPTED
        note = {"message": str(error) or "interrupted", "interrupted": True}
        Path(notes, f"{number}.json").write_text(json.dumps(note), encoding="utf-8")
    except Exception as error:
        note = {"message": str(error), "kind": type(error).__name__, "wrong_input": isinstance(error, ValueError)}
        note["traceback"] = traceback.format_exc()
        note["lost_contact"] = _lost_contact(error)
        Path(notes, f"{number}.json").write_text(json.dumps(note), encoding="utf-8")
        code = 2 if isinstance(error, ValueError) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of gloo may still wait for a peer that is gone


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _lost_contact(error: Exception) -> bool:
    """Whether this failure only says that another rank has gone."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "peer", "socket", "timed out"))


# In the job's own process


def _wait(ranks: list[BaseProcess], stop: StopRequest, notes: Path) -> dict[int, int]:
    """Exit codes by rank, once all have ended, or one has failed and the others have had their time to notice.

    A signal is passed on to rank 0, which ends as a single process would, perhaps with a checkpoint. Before rank 0 can
    hear it, there is nothing to keep, and the job ends at once.
    """
    deadline: float | None = None
    told = False
    while True:
        ended = {number: process.exitcode for number, process in enumerate(ranks) if process.exitcode is not None}
        if len(ended) == len(ranks) or (deadline is not None and time.monotonic() > deadline):
            return ended
        if deadline is None and any(ended.values()):
            deadline = time.monotonic() + _GRACE
        if stop.signal is not None and not told and 0 not in ended:
            told = True
            if not (notes / _READY).exists():
                raise Interrupted("interrupted before the first step", 128 + stop.signal)
            with contextlib.suppress(ProcessLookupError):
                os.kill(ranks[0].pid or os.getpid(), stop.signal)
        wait([process.sentinel for number, process in enumerate(ranks) if number not in ended], timeout=0.2)


def _stop(ranks: list[BaseProcess]) -> None:
    started = [process for process in ranks if process.pid is not None]
    for process in started:
        if process.is_alive():
            process.kill()
    for process in started:
        process.join()


def _verdict(ended: dict[int, int], processes: int, notes: Path, stop: StopRequest) -> int:
    """The exit code of the job, or an error about the process that failed first, as far as can be told.

    When one rank goes, the others lose contact and fail in turn: theirs is never the reason given.
    """
    found = {
        number: json.loads(path.read_text(encoding="utf-8"))
        for number in ended
        if (path := notes / f"{number}.json").exists()
    }
    if found.get(0, {}).get("interrupted"):
        raise Interrupted(found[0]["message"], ended[0])
    if stop.signal is not None and ended.get(0) == -stop.signal:  # it came before rank 0 listened for it
        raise Interrupted("interrupted before the first step", 128 + stop.signal)
    for number, code in ended.items():
        if code < 0:
            name = signal.Signals(-code).name
            raise RankFailedError(
                f"rank {number} of {processes} was ended by {name}{' (often: out of memory)' if name == 'SIGKILL' else ''}, "
                "and the other processes were stopped; the run can go on from its last checkpoint, with any number of them"
            )
    for number, note in sorted(found.items(), key=lambda item: (item[1]["lost_contact"], item[0])):
        if os.environ.get("WIREBOUND_DEBUG"):
            print(note["traceback"], file=sys.stderr)
        if number == 0 and note["wrong_input"]:
            raise ConfigError(note["message"])
        raise RankFailedError(f"rank {number} of {processes} failed: {note['kind']}: {note['message']}")
    return max(ended.values())
