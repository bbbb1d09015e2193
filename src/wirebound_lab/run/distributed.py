"""A training run on several processes: rank 0 leads, writes and evaluates; the others follow.

Every rank goes through the same global batches and takes its part of each, so the steps of a run, its checkpoints and
its learning curve do not depend on the number of processes, up to rounding. Steps are those of the module path; the
fused path is for one process.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from wirebound.distributed import rank, world_size
from wirebound.engine.window import Tally
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.run.config import RunConfig, make_config
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import load_checkpoint
from wirebound_lab.run.running import TrainingRun

_LOCAL = ("data_path", "threads")  # settings that each machine has for itself
_NO_CHECKPOINT = -1


@dataclass(frozen=True)
class Start:
    """What rank 0 tells the others before anything begins."""

    config: RunConfig
    finished: bool
    resume: bool


def agree(config: RunConfig, folder: RunFolder | None, resume: bool) -> Start:
    """The settings of rank 0, whether its run has ended already, and whether it resumes one."""
    mine = Start(config, folder is not None and folder.finished, resume and folder is not None)
    if world_size() == 1:
        return mine
    said = {"config": config.as_dict(), "finished": mine.finished, "resume": mine.resume}
    content = _send(json.dumps(said).encode() if rank() == 0 else None)
    assert content is not None
    theirs = json.loads(content)
    own = {name: getattr(config, name) for name in _LOCAL}
    return Start(make_config({**theirs["config"], **own}), theirs["finished"], theirs["resume"])


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


def follow(run: TrainingRun, start: Start) -> None:
    """What a rank other than 0 does, from the checkpoint of rank 0 if it resumes from one."""
    if start.resume:
        content = _send(None)
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
