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
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.distributed import check, part, rank, sum_weight, world_size, wrap
from wirebound.engine.diagnose import broken_gradient, where_not_finite
from wirebound.engine.modules import ModuleEngine
from wirebound.engine.window import Tally
from wirebound.methods import Method
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.run.config import ConfigError, TrainConfig, make_config
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import load_checkpoint
from wirebound_lab.run.running import Run

CHECK_EVERY = 100
_LOCAL = ("data_path", "threads")  # settings that each machine has for itself
_NO_CHECKPOINT = -1


class DistributedEngine(ModuleEngine):
    """Steps whose gradients come from all ranks."""

    def __init__(self, model: nn.Module, method: Method, x: Tensor, y: Tensor) -> None:
        super().__init__(model, method, x, y)
        # Gradients live in what is sent: no second copy of K numbers.
        self.parallel = wrap(model, check_every=0, gradient_as_bucket_view=True)

    def _gradients(self, batch: Tensor) -> tuple[float, str]:
        check(self.method, every=CHECK_EVERY)
        mine = part(batch)
        x, y = self.x[mine], self.y[mine]
        loss = F.cross_entropy(self.parallel(x), y, reduction="sum")
        mean = loss.detach() / len(batch)
        sending = dist.all_reduce(mean, async_op=True)  # on its way while gradients are computed
        (loss * sum_weight(len(batch))).backward()
        assert sending is not None
        sending.wait()
        value = mean.item()
        if not torch.isfinite(mean):  # of the global batch: all ranks come to the same decision
            return value, where_not_finite(self.model, x) if len(mine) else "the part of another rank"
        return value, broken_gradient(self.model) if self.on_nan == "skip" else ""


def distributed_engine(config: TrainConfig, model: nn.Module, method: Method, x: Tensor, y: Tensor) -> ModuleEngine:
    if config.engine == "fused":
        raise ConfigError(f"engine (='fused') runs in one process, not in {world_size()}: use module or auto")
    return DistributedEngine(model, method, x, y)


@dataclass(frozen=True)
class Start:
    """What rank 0 tells the others before anything begins."""

    config: TrainConfig
    finished: bool
    resume: bool


def agree(config: TrainConfig, folder: RunFolder | None, resume: bool) -> Start:
    """The settings of rank 0, whether its run has ended already, and whether it goes on with one."""
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


class Follower(Run):
    """A run on another rank than 0: the same steps, nothing written, nothing evaluated."""

    def _end_epoch(self, lr: float) -> None:
        for wiring in wirings(self.model):
            wiring.check()
        self.state.epoch, self.state.taken, self.state.whole = self.state.epoch + 1, 0, Tally()


def follow(run: Run, start: Start) -> None:
    """What a rank other than 0 does, from the checkpoint of rank 0 if it goes on from one."""
    if start.resume:
        content = _send(None)
        if content is not None:
            with tempfile.TemporaryDirectory(prefix="wirebound-") as scratch:
                copy = RunFolder(Path(scratch) / "run", resume=True)
                copy.partial.mkdir()
                copy.checkpoint.write_bytes(content)
                state = load_checkpoint(copy, run.config, run.method, run.engine.name, run.per_epoch)
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
