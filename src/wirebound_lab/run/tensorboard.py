"""The records of a run (``metrics.jsonl``) as TensorBoard scalars, while it trains.

A run that is resumed writes on in the same folder, and hides what it had written after its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirebound_lab.run.config import ConfigError


class TensorBoard:
    """A recorder for ``wirebound_lab.run.train``, and a context manager.

    Event files go into ``folder``; ``part`` is what accuracies are measured on, "test" or "validation".
    """

    def __init__(self, folder: Path, part: str = "test") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            needs = "needs the package tensorboard: pip install 'wirebound[tensorboard]'"
            raise ConfigError(f"tensorboard (={folder}) {needs} ({error})") from error
        self.folder, self.part, self._make = folder, part, SummaryWriter
        self._writer: Any = None
        folder.mkdir(parents=True, exist_ok=True)  # a place that cannot be written is found before the first step

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._writer is None:
            # What an earlier sitting wrote from here on is written again.
            self._writer = self._make(str(self.folder), purge_step=values.get("step_from", values.get("step", 0)))
        scalars: dict[str, float | None] = {}
        if kind == "window":
            steps = values["step_to"] - values["step_from"] + 1
            scalars = {"loss/train": values["loss"], "connections/active": values["active_max"]}
            for name in ("newborns", "deaths"):
                scalars |= {f"{name} a step/layer {n}": count / steps for n, count in enumerate(values.get(name) or (), 1)}
        elif kind == "epoch":
            scalars = {f"{name}/{self.part}": values.get(f"test_{name}") for name in ("accuracy", "loss")}
            scalars |= {"learning rate": values["lr"]}
            scalars |= {f"connections/layer {number}": active for number, active in enumerate(values["layer_active"], 1)}
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name.replace(" ", "_"), value, values.get("step_to", values.get("step")))
        if kind == "epoch":
            self._writer.flush()
