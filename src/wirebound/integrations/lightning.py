"""Lightning: ``trainer.fit`` trains with a method of wirebound (``pip install 'wirebound[lightning]'``).

    trainer = Trainer(callbacks=[Rewiring(wb.DeepR, l1=1e-4)])
    trainer.fit(module, loader)

The module stays as it is: ``configure_optimizers`` returns an ordinary torch optimiser, with or without an lr
scheduler. The callback puts the method in its place before Lightning restores a checkpoint, so the method's state is
kept and resumed with the optimiser's. Gradient accumulation and clipping are Lightning's and stay so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer, callbacks
from torch import optim

from wirebound.integrations.optimizer import RewiringOptimizer
from wirebound.methods import Fixed, Method
from wirebound.nn.sparse_layer import wirings

# Some versions have only the first.
_AVERAGES = tuple(
    getattr(callbacks, name) for name in ("StochasticWeightAveraging", "WeightAveraging") if hasattr(callbacks, name)
)


class Rewiring(Callback):
    """Train a sparsified LightningModule with a method.

    Args:
        method: the class of the method, such as ``wb.DeepR``, or any function of (model, optimizer, **settings).
        log: log ``connections/active`` and ``connections/rewired`` every ``log_every_n_steps`` of the trainer.
        settings: of the method.

    A module that makes its methods itself returns ``RewiringOptimizer(method)`` from ``configure_optimizers`` and
    needs no callback.
    """

    def __init__(self, method: Callable[..., Method], *, log: bool = True, **settings: Any) -> None:
        self.make = method
        self.settings = settings
        self.log_steps = log
        self.method: Method | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise ValueError(
                "Rewiring needs automatic optimisation: with manual optimisation, call the method's step() instead of "
                "the optimiser's"
            )
        optimizers = [_bare(optimizer) for optimizer in trainer.optimizers]
        if len(optimizers) != 1:
            raise ValueError(f"Rewiring needs one optimiser, but configure_optimizers gave {len(optimizers)}")
        self.method = self.make(pl_module, optimizers[0], **self.settings)
        if wirings(pl_module) and not isinstance(self.method, Fixed):
            _refuse_averages(trainer)
        trainer.strategy.optimizers = [RewiringOptimizer(self.method)]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        optimizer = trainer.optimizers[0]
        info = optimizer.info if isinstance(optimizer, RewiringOptimizer) else None
        if self.log_steps and info is not None:
            pl_module.log_dict({"connections/active": float(info.active), "connections/rewired": float(info.rewired)})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for wiring in wirings(pl_module):
            wiring.check()


def _refuse_averages(trainer: Trainer) -> None:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, _AVERAGES):
            raise ValueError(
                f"{type(callback).__name__} averages weights place by place, but connections move: leave it out and use "
                "wb.WeightAverage(rewiring.method), whose averages move with their connections"
            )


def _bare(optimizer: optim.Optimizer) -> optim.Optimizer:
    if isinstance(optimizer, RewiringOptimizer):
        raise ValueError("configure_optimizers gave a RewiringOptimizer already: leave the Rewiring callback out")
    return optimizer
