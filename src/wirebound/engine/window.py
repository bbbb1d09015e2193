"""Steps in a row, as an engine reports them and as they are recorded."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Skip:
    """A step that was not taken, because its numbers were not finite."""

    step: int
    where: str


@dataclass(frozen=True)
class StepWindow:
    """Some steps in a row."""

    step_from: int
    step_to: int
    loss: float  # mean over the steps that were taken
    active_min: int
    active_max: int
    newborns: list[int]  # of each layer, in all these steps
    losses: list[float] = field(default_factory=list, repr=False)  # of each step that was taken
    skipped: list[Skip] = field(default_factory=list)


def mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses) if losses else 0.0


def join(parts: Sequence[StepWindow]) -> StepWindow:
    """Windows in a row as one."""
    if len(parts) == 1:
        return parts[0]
    losses = [loss for part in parts for loss in part.losses]
    newborns = [sum(column) for column in zip(*(part.newborns for part in parts), strict=True)]
    least, most = min(part.active_min for part in parts), max(part.active_max for part in parts)
    skipped = [skip for part in parts for skip in part.skipped]
    return StepWindow(parts[0].step_from, parts[-1].step_to, mean(losses), least, most, newborns, losses, skipped)


@dataclass
class Tally:
    """What has come in since a window or an epoch began.

    Losses are added one after another: an interrupted run, cut into other pieces, records the same numbers.
    """

    step_from: int = 0  # 0: nothing yet
    step_to: int = 0
    loss: float = 0.0
    counted: int = 0
    active_min: int = 0
    active_max: int = 0
    newborns: list[int] = field(default_factory=list)

    def add(self, part: StepWindow) -> None:
        if not self.step_from:
            self.step_from, self.active_min, self.active_max = part.step_from, part.active_min, part.active_max
            self.newborns = [0] * len(part.newborns)
        self.step_to = part.step_to
        for loss in part.losses:
            self.loss += loss
        self.counted += len(part.losses)
        self.active_min, self.active_max = min(self.active_min, part.active_min), max(self.active_max, part.active_max)
        self.newborns = [a + b for a, b in zip(self.newborns, part.newborns, strict=True)]

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.counted if self.counted else None

    def as_record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "counted"} | {"loss": self.mean_loss}
