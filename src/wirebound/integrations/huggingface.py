"""Hugging Face's Trainer (``pip install 'wirebound[huggingface]'``): a callback that logs and checks.

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rewiring = wb.DeepR(model, optimizer, l1=1e-3)
    trainer = Trainer(model=model, args=..., optimizers=(optimizer, None), callbacks=[BudgetCallback()])
"""

from typing import Any

from transformers import TrainerCallback

from wirebound.methods.attach import attached
from wirebound.nn.sparse_layer import wirings


class BudgetCallback(TrainerCallback):
    """Refuses an optimiser without a method, logs what is active and rewired, and checks wirings when they are saved."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._method = attached(kwargs["optimizer"])
        if self._method is None:
            what_to_do = "give it the method's, Trainer(optimizers=(method.optimizer, None))"
            raise ValueError(f"the Trainer's optimizer has no method attached, so connections are never rewired: {what_to_do}")

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        info = None if self._method is None else self._method.info
        if info is not None:
            # The Trainer has put a copy into the history before it calls back.
            for entry in (kwargs["logs"], state.log_history[-1]):
                entry["active"], entry["rewired"] = info.active, info.rewired

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for wiring in wirings(kwargs["model"]):
            wiring.check()

    on_train_end = on_save
