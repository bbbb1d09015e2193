"""Which engine takes the steps of a run: fused, modules, or modules on several processes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wirebound.distributed import check, part, sum_weight, world_size, wrap
from wirebound.engine.diagnose import broken_gradient, where_not_finite
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Batch, Engine, ModuleEngine
from wirebound.methods import Method
from wirebound_lab.data import Dataset
from wirebound_lab.run.config import ConfigError, RunConfig

CHECK_EVERY = 100  # steps between comparisons of the ranks


def choose_engine(config: RunConfig, model: nn.Module, method: Method, data: Dataset) -> Engine:
    """Fused native steps where model, loss and method allow them, ordinary modules elsewhere."""
    several = f"runs in one process, not in {world_size()}: use module or auto" if world_size() > 1 else ""
    reason = several or why_not_fused(model, method)
    if config.engine == "fused" and reason:
        raise ConfigError(f"engine (='fused') {several or f'cannot run this: {reason}'}")
    if config.engine == "module" or reason:
        kind = DistributedEngine if several else ModuleEngine
        return kind(model, method, data.inputs("train", flatten=True), data.train_y)
    # The kernels read the bytes as they are stored: a quarter of the memory traffic.
    return FusedEngine(model, method, data.train_x.flatten(1), data.train_y, scale=1 / data.maximum)


class DistributedEngine(ModuleEngine):
    """Steps whose gradients come from all ranks; ``count`` says over how much of ``y`` the loss is the mean."""

    def __init__(
        self, model: nn.Module, method: Method, x: Tensor | None = None, y: Tensor | None = None,
        loss: Callable[..., Tensor] | None = None, count: Callable[[Tensor], int] = len,
    ) -> None:  # fmt: skip
        super().__init__(model, method, x, y, loss)
        self.count = count
        # Gradients live in what is sent: no second copy of K numbers.
        self.parallel = wrap(model, check_every=0, gradient_as_bucket_view=True)

    def _gradients(self, batch: Batch) -> tuple[float, str]:
        check(self.method, every=CHECK_EVERY)
        inputs, y, count = [part(x) for x in batch.inputs], part(batch.y), self.count(batch.y)
        loss = self.loss(self.parallel(*inputs), y, reduction="sum")
        mean = loss.detach() / count
        sending = dist.all_reduce(mean, async_op=True)  # on its way while gradients are computed
        (loss * sum_weight(count)).backward()  # type: ignore[no-untyped-call]
        assert sending is not None
        sending.wait()
        value = mean.item()
        if not torch.isfinite(mean):  # of the global batch: all ranks come to the same decision
            return value, where_not_finite(self.model, *inputs) if len(y) else "the part of another rank"
        return value, broken_gradient(self.model) if self.on_nan == "skip" else ""
