"""The records of a run as TensorBoard scalars, while it trains.

Nothing is measured for it: it gets what goes into ``metrics.jsonl``, once a window and once an epoch. A run that is
resumed writes on in the same folder, and hides what it had written after its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from wirebound_lab.run.config import ConfigError


class TensorBoard:
    """A recorder for ``wirebound_lab.run.train``; use it as a context manager.

    Args:
        folder: where the event files of this run go; ``tensorboard --logdir`` takes it, or a folder above it that
            holds several.
        part: what accuracies are measured on, "test" or "validation".
    """

    def __init__(self, folder: Path, part: str = "test") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                f"tensorboard (={folder}) needs the package tensorboard: pip install 'wirebound[tensorboard]' ({error})"
            ) from error
        self.folder, self.part = folder, part
        self._make = SummaryWriter
        self._writer: Any = None
        folder.mkdir(parents=True, exist_ok=True)  # a place that cannot be written is found before the first step

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, kind: str, values: Mapping[str, Any]) -> None:
        """One record of the run."""
        if self._writer is None:
            # What an earlier sitting wrote from here on is written again.
            first = values.get("step_from", values.get("step", 0))
            self._writer = self._make(str(self.folder), purge_step=first)
        if kind == "window":
            self._window(values)
        elif kind == "epoch":
            self._epoch(values)
            self._writer.flush()

    def _window(self, values: Mapping[str, Any]) -> None:
        step, steps = values["step_to"], values["step_to"] - values["step_from"] + 1
        self._scalar("loss/train", values["loss"], step)
        self._scalar("connections/active", values["active_max"], step)
        for name in ("newborns", "deaths"):
            counts: Sequence[int] = values.get(name) or ()
            for number, count in enumerate(counts, 1):
                self._scalar(f"{name} a step/layer {number}", count / steps, step)

    def _epoch(self, values: Mapping[str, Any]) -> None:
        step = values["step"]
        self._scalar(f"accuracy/{self.part}", values["test_accuracy"], step)
        self._scalar(f"loss/{self.part}", values["test_loss"], step)
        self._scalar("learning rate", values["lr"], step)
        for number, active in enumerate(values["layer_active"], 1):
            self._scalar(f"connections/layer {number}", active, step)

    def _scalar(self, name: str, value: float | None, step: int) -> None:
        if value is not None:
            self._writer.add_scalar(name.replace(" ", "_"), value, step)
