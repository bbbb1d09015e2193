"""Where a run stands: what a checkpoint keeps beside model, optimiser and method."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from wirebound.checkpoint import CheckpointError
from wirebound.engine.window import Tally


@dataclass
class RunState:
    """Everything that the loop and the summary remember; a run with the same state goes on in the same way.

    The position in the data is (epoch, taken): the order of an epoch follows from seed and epoch.
    """

    initial: list[int]  # connections of each layer before the first step
    epoch: int = 1  # the epoch that is running, from 1
    taken: int = 0  # its steps so far
    active_min: int = 0
    active_max: int = 0
    window: Tally = field(default_factory=Tally)
    whole: Tally = field(default_factory=Tally)  # of the epoch
    accuracy: float = 0.0  # after the last epoch
    test_loss: float = 0.0
    skipped: int = 0  # steps left out so far
    skips: int = 0  # in a row
    seconds: float = 0.0  # of all sittings
    training_seconds: float = 0.0
    metrics: int = 0  # bytes of metrics.jsonl
    layer_active: list[int] = field(default_factory=list)  # of each layer when the last window was recorded

    def __post_init__(self) -> None:
        self.layer_active = self.layer_active or list(self.initial)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read_state(stored: Any, layers: int, epochs: int, per_epoch: int) -> RunState:
    """The state in a checkpoint, if it is one of a run like this."""
    if not isinstance(stored, dict):
        raise CheckpointError("the checkpoint holds no state of a run: it was not written by wirebound train")
    initial = stored.get("initial")
    if not isinstance(initial, list) or len(initial) != layers or not all(type(n) is int and n >= 0 for n in initial):
        raise CheckpointError(f"the state of the run must have first counts of {layers} layers")
    found: RunState = _filled(RunState(initial), {**stored, "initial": initial}, "run")
    if len(found.layer_active) != layers:
        raise CheckpointError(f"the state of the run must have the last counts of {layers} layers")
    if not (1 <= found.epoch <= epochs + 1 and 0 <= found.taken < per_epoch + 1):
        raise CheckpointError(f"the run must stand in one of {epochs} epochs of {per_epoch} steps")
    for tally in (found.window, found.whole):
        if len(tally.newborns) not in (0, layers) or (tally.step_from and not tally.newborns):
            raise CheckpointError(f"the state of the run must count newborns of {layers} layers")
    return found


def _filled(target: Any, stored: Any, name: str) -> Any:
    """``target`` with each field from ``stored``, which must have the same names and types."""
    names = [f.name for f in dataclasses.fields(target)]
    if not isinstance(stored, dict) or set(stored) != set(names):
        raise CheckpointError(f"{name} must hold {', '.join(names)}")
    for key in names:
        mine, value = getattr(target, key), stored[key]
        if isinstance(mine, Tally):
            value = _filled(Tally(), value, key)
        elif isinstance(mine, list):
            fits = isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
            if not fits:
                raise CheckpointError(f"{name}/{key} must be counts")
        elif isinstance(mine, int):
            if type(value) is not int or not 0 <= value < 1 << 62:
                raise CheckpointError(f"{name}/{key} must be a count")
        elif type(value) is not float or not math.isfinite(value):
            raise CheckpointError(f"{name}/{key} must be a finite number")
        setattr(target, key, value)
    return target
