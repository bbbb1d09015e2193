"""Hugging Face's Trainer (``pip install 'wirebound[huggingface]'``).

    optimizer = RewiringOptimizer(wb.DeepR(model, torch.optim.AdamW(model.parameters(), lr=1e-3), l1=1e-3))
    trainer = Trainer(model=model, args=..., optimizers=(optimizer, None), callbacks=[BudgetCallback()])
    trainer.train(resume_from_checkpoint=...)

The Trainer calls ``optimizer.step()``, accumulates and clips gradients and makes its lr scheduler as ever; its
``optimizer.pt`` then holds the method's state too.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from wirebound.integrations.optimizer import RewiringOptimizer
from wirebound.nn.sparse_layer import wirings

__all__ = ["BudgetCallback", "RewiringOptimizer"]


class BudgetCallback(TrainerCallback):
    """Refuses an optimiser that would leave the wiring without its method, logs what is active and rewired, and checks
    every wiring at each checkpoint and at the end."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._optimizer = _rewiring(kwargs["optimizer"])

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        info = self._optimizer.info
        if info is not None:
            # The Trainer has put a copy into the history before it calls back.
            for entry in (kwargs["logs"], state.log_history[-1]):
                entry["active"], entry["rewired"] = info.active, info.rewired

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        _check(kwargs["model"])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        _check(kwargs["model"])


def _rewiring(optimizer: Any) -> RewiringOptimizer:
    """The wrapper itself, from inside whatever the Trainer has put around it."""
    inner = optimizer
    while not isinstance(inner, RewiringOptimizer):
        if not hasattr(inner, "optimizer"):
            raise ValueError(
                f"optimizer (={type(inner).__name__}) must be a RewiringOptimizer, or connections are never rewired: "
                "Trainer(optimizers=(RewiringOptimizer(method), None))"
            )
        inner = inner.optimizer
    return inner


def _check(model: Any) -> None:
    for wiring in wirings(model):
        wiring.check()
