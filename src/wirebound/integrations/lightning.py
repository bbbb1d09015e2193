"""Lightning (``pip install 'wirebound[lightning]'``): a callback that logs, and refuses what would mix connections.

    trainer = Trainer(callbacks=[Rewiring(wb.DeepR, l1=1e-4)])
    trainer.fit(module, loader)

Without it, ``configure_optimizers`` makes the method: ``wb.DeepR(self, optimizer)``.
"""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer, callbacks

from wirebound.methods import Fixed, Method
from wirebound.methods.attach import attached
from wirebound.nn.sparse_layer import wirings

# Some versions have only the first.
_NAMES = ("StochasticWeightAveraging", "WeightAveraging")
_AVERAGES = tuple(getattr(callbacks, name) for name in _NAMES if hasattr(callbacks, name))


class Rewiring(Callback):
    """Log what a method does to a sparsified LightningModule, check its wirings at the end, and refuse averages.

    Args:
        method: the class of the method, or a function of its arguments; None if ``configure_optimizers`` attaches one.
        log: log ``connections/active`` and ``connections/rewired`` every ``log_every_n_steps`` of the trainer.
        settings: of the method.
    """

    def __init__(self, method: Callable[..., Method] | None = None, *, log: bool = True, **settings: Any) -> None:
        self.make, self.log_steps, self.settings = method, log, settings
        self.method: Method | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = list(filter(None, map(attached, trainer.optimizers)))
        if self.make is None:
            if len(found) != 1:
                raise ValueError("Rewiring() needs a method: name it, or attach one to the optimiser in configure_optimizers")
            self.method = found[0]
        elif len(trainer.optimizers) != 1:
            raise ValueError(f"Rewiring needs one optimiser, but configure_optimizers gave {len(trainer.optimizers)}")
        else:
            self.method = self.make(pl_module, trainer.optimizers[0], **self.settings)
        if not isinstance(self.method, Fixed) and wirings(pl_module):
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, _AVERAGES):
                    instead = "omit it and use wb.WeightAverage(rewiring.method), whose averages move with their connections"
                    name = type(callback).__name__
                    raise ValueError(f"{name} averages weights place by place, but connections move: {instead}")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        info = None if self.method is None else self.method.info
        if self.log_steps and info is not None:
            pl_module.log_dict({"connections/active": float(info.active), "connections/rewired": float(info.rewired)})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for wiring in wirings(pl_module):
            wiring.check()
