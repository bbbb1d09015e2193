"""A training run on several processes, which are started here or by ``torchrun``: rank 0 leads, writes and evaluates.

Every rank goes through the same global batches and takes its part of each, so the steps of a run, its checkpoints and
its learning curve do not depend on the number of processes, up to rounding. Steps are those of the module path.
"""

import contextlib
import json
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

from wirebound.distributed import rank, world_size
from wirebound.engine.window import Tally
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.run.config import ConfigError, RunConfig, make_config
from wirebound_lab.run.processes import GRACE, POLL, Child, Interrupted, StopRequest, Work, in_words
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import load_checkpoint
from wirebound_lab.run.running import TrainingRun

TIMEOUT = timedelta(minutes=10)  # a rank that is silent for longer is taken for dead; a dead one is noticed at once
_LOCAL = ("data_path", "threads")  # settings that each machine has for itself
_NO_CHECKPOINT = -1


def agree(config: RunConfig, folder: RunFolder | None, resume: bool) -> tuple[RunConfig, bool, bool]:
    """The settings of rank 0, whether its run has ended already, and whether it resumes one."""
    finished, resume = folder is not None and folder.finished, resume and folder is not None
    if world_size() == 1:
        return config, finished, resume
    content = _send(json.dumps([config.as_dict(), finished, resume]).encode() if rank() == 0 else None)
    assert content is not None
    theirs, finished, resume = json.loads(content)
    return make_config({**theirs, **{name: getattr(config, name) for name in _LOCAL}}), finished, resume


def lead(folder: RunFolder) -> None:
    """Rank 0 gives its checkpoint to the others, which may be on other machines."""
    if world_size() > 1:
        _send(folder.checkpoint.read_bytes() if folder.checkpoint.exists() else None)


class Follower(TrainingRun):
    """A run on another rank than 0: the same steps, nothing written, nothing evaluated."""

    def _look(self) -> None:
        pass

    def _end_epoch(self, lr: float) -> None:
        for wiring in wirings(self.model):
            wiring.check()
        self.state.epoch, self.state.taken, self.state.whole = self.state.epoch + 1, 0, Tally()


def follow(run: TrainingRun, resume: bool) -> None:
    """What a rank other than 0 does, from the checkpoint of rank 0 if it resumes from one."""
    content = _send(None) if resume else None
    if content is not None:
        with tempfile.TemporaryDirectory(prefix="wirebound-") as scratch:
            copy = RunFolder(Path(scratch) / "run", resume=True)
            copy.partial.mkdir()
            copy.checkpoint.write_bytes(content)
            state = load_checkpoint(copy, run.config, run.method, run.engine.name, run.task)
            assert state is not None
            run.state, run.engine.skips = state, state.skips
    with StopRequest() as stop:
        try:
            run.go(StopRequest())  # rank 0 says when to stop, by leaving
        except RuntimeError as error:
            if stop():
                raise Interrupted("interrupted together with rank 0", 128 + (stop.signal or 0)) from error
            raise


def _send(content: bytes | None) -> bytes | None:
    """The bytes that rank 0 has, or has not, on all ranks."""
    length = torch.tensor([_NO_CHECKPOINT if content is None else len(content)])
    dist.broadcast(length, 0)
    if int(length) == _NO_CHECKPOINT:
        return None
    buffer = torch.empty(int(length), dtype=torch.uint8)
    if rank() == 0:
        assert content is not None
        buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    dist.broadcast(buffer, 0)
    return buffer.numpy().tobytes()


# Processes on this machine


class RankFailedError(RuntimeError):
    """A process of the job failed; the message says which and why."""


def launch(work: Work, arguments: tuple[Any, ...], processes: int, *, timeout: timedelta = TIMEOUT) -> int:
    """Call ``work(*arguments)``, a function of a module, in processes that form a group (gloo); the exit code of rank 0.

    If one fails, the others are stopped. Ctrl-C and SIGTERM are passed on to rank 0 alone; the others end when it has left.
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
    said = any(word in str(error).lower() for word in ("gloo", "peer", "socket", "timed out"))
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and said)


def _wait(ranks: list[Child], stop: StopRequest) -> dict[int, int]:
    """Exit codes by rank, once all have ended, or one has failed and the others have had their time to notice."""
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
    """The exit code of the job, or an error about the process that failed first; others only lost contact with it."""
    of = len(ranks)
    errors = {number: error for number in ended if (error := ranks[number].error) is not None}
    if isinstance(errors.get(0), KeyboardInterrupt):
        raise Interrupted(str(errors[0]) or "interrupted", ended[0])
    if stop.signal is not None and ended.get(0) == -stop.signal:  # it came before rank 0 listened for it
        raise Interrupted("interrupted before the first step", 128 + stop.signal)
    for number, code in ended.items():
        if code < 0:
            said = f"rank {number} of {of} was {in_words(code)}, and the other processes were stopped"
            raise RankFailedError(f"{said}; the run can resume from its last checkpoint, with any number of them")
    for number, error in sorted(errors.items(), key=lambda item: (_lost_contact(item[1]), item[0])):
        if number == 0 and isinstance(error, ValueError):
            raise ConfigError(str(error)) from error
        raise RankFailedError(f"rank {number} of {of} failed: {type(error).__name__}: {error}")
    return max(ended.values())
