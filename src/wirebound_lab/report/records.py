"""metrics.jsonl: what a run wrote down while it was training.

One JSON object a line, told apart by "kind". Kinds and keys not known here are ignored. A run that was
killed leaves a cut line; a run that was resumed repeats the steps after its checkpoint. Neither may
spoil the page: unreadable lines are skipped and counted, and of repeated records the later ones count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .pictures import Picture, read_picture
from .values import number, numbers, whole


@dataclass(frozen=True)
class Epoch:
    """The state after one epoch."""

    epoch: int
    step: int | None
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    active: int | None
    layer_active: tuple[float | None, ...]


@dataclass(frozen=True)
class Window:
    """A run of steps, step_from to step_to, both included."""

    step_from: int
    step_to: int
    loss: float | None
    active_min: int | None
    active_max: int | None
    newborns: tuple[float | None, ...]
    deaths: tuple[float | None, ...] = ()  # empty where they were not counted

    @property
    def steps(self) -> int:
        return self.step_to - self.step_from + 1


@dataclass
class Records:
    """Everything in one metrics.jsonl, in the order of training."""

    epochs: list[Epoch] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_records(path: Path) -> Records:
    """Read metrics.jsonl, keep what is understood, and note what was skipped."""
    epochs: dict[int, Epoch] = {}
    windows: list[Window] = []
    pictures: dict[int, Picture] = {}
    unreadable: list[int] = []
    losses_not_finite = 0
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    last = max((index for index, line in enumerate(lines) if line.strip()), default=-1)
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            unreadable.append(index)
            continue
        if not isinstance(record, dict):
            unreadable.append(index)
            continue
        kind = record.get("kind")
        if kind == "epoch" and (epoch := _epoch(record)) is not None:
            epochs[epoch.epoch] = epoch
        elif kind == "window" and (window := _window(record)) is not None:
            losses_not_finite += window.loss is None and "loss" in record
            _append(windows, window)
        elif kind == "wiring" and (picture := read_picture(record)) is not None:
            pictures[picture.epoch] = picture
    return Records(
        epochs=[epochs[key] for key in sorted(epochs)],
        windows=windows,
        pictures=[pictures[key] for key in sorted(pictures)],
        notes=_notes(unreadable, last, losses_not_finite),
    )


def _notes(unreadable: Sequence[int], last: int, losses_not_finite: int) -> list[str]:
    notes = []
    if last < 0:
        notes.append("metrics.jsonl is empty: there is nothing to plot yet.")
    if last in unreadable:
        notes.append(
            f"The last line of metrics.jsonl (line {last + 1}) is cut and was skipped: "
            "the run was interrupted, or is still writing."
        )
    others = [str(index + 1) for index in unreadable if index != last]
    if others:
        shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
        notes.append(f"{len(others)} unreadable line(s) of metrics.jsonl were skipped (line {shown}).")
    if losses_not_finite:
        notes.append(
            f"The loss was not a finite number in {losses_not_finite} recorded window(s); they leave gaps."
        )
    return notes


def _append(windows: list[Window], window: Window) -> None:
    # A resumed run starts again at its checkpoint: its windows replace those that were lost.
    while windows and windows[-1].step_to >= window.step_from:
        windows.pop()
    windows.append(window)


def _epoch(record: Mapping[str, Any]) -> Epoch | None:
    epoch = whole(record.get("epoch"))
    if epoch is None:
        return None
    return Epoch(
        epoch=epoch,
        step=whole(record.get("step")),
        train_loss=number(record.get("train_loss")),
        test_loss=number(record.get("test_loss")),
        test_accuracy=number(record.get("test_accuracy")),
        active=whole(record.get("active")),
        layer_active=numbers(record.get("layer_active")),
    )


def _window(record: Mapping[str, Any]) -> Window | None:
    step_from, step_to = whole(record.get("step_from")), whole(record.get("step_to"))
    if step_from is None or step_to is None or step_to < step_from:
        return None
    return Window(
        step_from=step_from,
        step_to=step_to,
        loss=number(record.get("loss")),
        active_min=whole(record.get("active_min")),
        active_max=whole(record.get("active_max")),
        newborns=numbers(record.get("newborns")),
        deaths=numbers(record.get("deaths")),
    )
