"""The network, the optimiser, the method and the engine that the settings of a run name."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn, optim

from wirebound.distributed import check, part, sum_weight, world_size, wrap
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Batch, Engine, ModuleEngine, broken_gradient, where_not_finite
from wirebound.methods import METHODS, Method, RunLength
from wirebound.nn.perceptron import draw_weights, perceptron
from wirebound.nn.sparsify import sparsify
from wirebound.optim.named import make_optimizer
from wirebound.wiring import Constraints
from wirebound.wiring.budget import read_allocation
from wirebound_lab.data import Dataset
from wirebound_lab.run.config import ConfigError, RunConfig, as_config_error

CHECK_EVERY = 100  # steps between comparisons of the ranks


def build_model(config: RunConfig, inputs: int, classes: int) -> nn.Module:
    """The perceptron of a run: sparse from the start, or plain for methods that store their matrices in full."""
    sizes, dropout = [inputs, *config.hidden, classes], (config.input_dropout, config.dropout)
    model = perceptron(sizes, config.activation, config.bias, "meta", dropout, config.seed)
    if METHODS[config.method].plain:
        return draw_weights(model, config.seed)
    start = {name: getattr(config, name) for name in ("scope", "init", "gain", "seed")}
    constraints = Constraints(config.max_fan_in, config.max_fan_out, config.dale) or None
    allocation = read_allocation(config.allocation)
    plain = (str(len(model) - 1),) if config.dense_output else ()
    start |= {"allocation": allocation, "constraints": constraints, "exclude": plain, "device": "cpu"}
    sparse = sparsify(model, config.connectivity, config.budget, **start)
    for name in plain:
        draw_weights(sparse.get_submodule(name), config.seed)
    return sparse


def build_optimizer(config: RunConfig, model: nn.Module, **other: Any) -> optim.Optimizer:
    """The optimiser that the settings name; ``other`` values stand for theirs."""
    values = {name: getattr(config, name) for name in ("lr", "momentum", "weight_decay", "eps")} | other
    return make_optimizer(config.optimizer, model.parameters(), **values)


def build_method(
    config: RunConfig, model: nn.Module, optimizer: optim.Optimizer, per_epoch: int | None = None, **other: Any
) -> Method:
    """The method of a run; ``per_epoch``, the steps of an epoch, is what schedules over a run go by."""
    length = RunLength(per_epoch, config.epochs)
    with as_config_error():
        return METHODS[config.method].from_settings(model, optimizer, {**config.as_dict(), **other}, length)


def choose_engine(config: RunConfig, model: nn.Module, method: Method, data: Dataset) -> Engine:
    """Fused native steps where model, loss and method allow them, ordinary modules elsewhere. The labels of the training
    examples may be probabilities of the classes."""
    several = f"runs in one process, not in {world_size()}: use module or auto" if world_size() > 1 else ""
    reason = several or why_not_fused(model, method)
    if config.engine == "fused" and reason:
        raise ConfigError(f"engine (='fused') {several or f'cannot run this: {reason}'}")
    y = data.train_y
    if config.engine == "module" or reason:
        kind = DistributedEngine if several else ModuleEngine
        return kind(model, method, data.inputs("train", flatten=True), y, F.cross_entropy)
    # The kernels read the bytes as they are stored: a quarter of the memory traffic.
    return FusedEngine(model, method, data.train_x.flatten(1), y, scale=1 / data.maximum, soft=y.is_floating_point())


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
