"""The runs of experiments with tasks of their own, as jobs of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wirebound_lab.paper.curves import Mean, mean_of
from wirebound_lab.paper.figure import Outcomes, Scale
from wirebound_lab.paper.job import Job, Summary, read_summary
from wirebound_lab.tasks.allocator import keep_freed_memory
from wirebound_lab.tasks.cifar import CifarTask
from wirebound_lab.tasks.phonemes import PhonemeTask
from wirebound_lab.tasks.same_run import check_same
from wirebound_lab.tasks.task import Task
from wirebound_lab.tasks.task_config import TaskConfig
from wirebound_lab.tasks.task_run import run_task

_TASKS: dict[str, type[Task]] = {"cifar": CifarTask, "phonemes": PhonemeTask}


@dataclass(frozen=True)
class TaskJob(Job):
    """A run of ``python -m wirebound_lab.tasks.cifar`` or ``phonemes``."""

    folder: str
    task: str
    config: TaskConfig

    def run(self, path: Path) -> Summary:
        keep_freed_memory()
        return run_task(_TASKS[self.task], self.config, path, resume=True)

    def finished(self, path: Path) -> Summary | None:
        check_same(self.config.identity(), path)
        return read_summary(path)


def affordable(scale: Scale, seeds: int) -> int:
    """Seeds of these runs, which take minutes each: two at most, unless all is asked for."""
    return seeds if scale is Scale.FULL else min(seeds, 2)


@dataclass(frozen=True)
class Difference(Mean):
    """A difference over seeds, each between two runs of the same seed."""

    least: float

    def words(self, above: str, below: str) -> str:
        """As in "1.59 ± 0.16 % more error": the difference without its sign, and what it is."""
        return f"{Mean(abs(self.value), self.spread, self.count).percent()} {above if self.value >= 0 else below}"


def difference(done: Outcomes, more: Sequence[TaskJob], less: Sequence[TaskJob], key: str) -> Difference | None:
    """``more`` − ``less``, seed by seed; None where no seed has both."""
    pairs = [
        done.summaries[a.folder][key] - done.summaries[b.folder][key]
        for a, b in zip(more, less, strict=False)
        if a.folder in done.summaries and b.folder in done.summaries
    ]
    mean = mean_of(pairs)
    return None if mean is None else Difference(mean.value, mean.spread, mean.count, min(pairs))
