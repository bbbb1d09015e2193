"""metrics.jsonl: what a run wrote down while it was training.

One JSON object a line, told apart by "kind". Kinds and keys not known here are ignored. A run that was killed leaves a
cut line; a run that was resumed repeats the steps after its checkpoint. Neither may spoil the page: unreadable lines
are skipped and counted, and of repeated records the later ones count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .values import counts, mapping, number, numbers, objects, whole, words


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
class RecordedWindow:
    """Steps step_from to step_to, both included; `deaths` is empty where they were not counted."""

    step_from: int
    step_to: int
    loss: float | None
    active_min: int | None
    active_max: int | None
    newborns: tuple[float | None, ...]
    deaths: tuple[float | None, ...] = ()

    @property
    def steps(self) -> int:
        return self.step_to - self.step_from + 1


@dataclass(frozen=True)
class Side:
    """Connections of the rows or of the columns of a layer, in groups of neighbours; the last may be smaller."""

    counts: tuple[int, ...]
    group: int
    length: int

    def sizes(self) -> list[int]:
        """Rows or columns in each group."""
        return [min(self.group, self.length - index * self.group) for index in range(len(self.counts))]

    def means(self) -> list[float]:
        """Connections of one row or column, by group."""
        return [value / size for value, size in zip(self.counts, self.sizes(), strict=True)]


@dataclass(frozen=True)
class LayerPicture:
    """One layer: rows are its outputs, columns its inputs."""

    name: str | None
    rows: Side
    columns: Side


@dataclass(frozen=True)
class Ages:
    """Connections of each layer by age in epochs; `starts` are the lowest ages of the bins."""

    starts: tuple[int, ...]
    layers: tuple[tuple[int, ...], ...]
    since_start: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(map(sum, self.layers))


@dataclass(frozen=True)
class Picture:
    """The wiring after an epoch; epoch 0 is before training. `inputs` are those of the first layer, one by one."""

    epoch: int
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    layers: tuple[LayerPicture, ...] = ()
    ages: Ages | None = None


@dataclass
class Records:
    """Everything in one metrics.jsonl, in the order of training."""

    epochs: list[Epoch] = field(default_factory=list)
    windows: list[RecordedWindow] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_records(path: Path) -> Records:
    """Read metrics.jsonl, keep what is understood, and note what was skipped."""
    epochs: dict[int, Epoch] = {}
    windows: list[RecordedWindow] = []
    pictures: dict[int, Picture] = {}
    unreadable: list[int] = []
    losses_not_finite = 0
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    filled = [(index, line) for index, line in enumerate(lines) if line.strip()]
    for index, line in filled:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            unreadable.append(index)
            continue
        kind = record.get("kind")
        if kind == "epoch" and (epoch := _epoch(record)) is not None:
            epochs[epoch.epoch] = epoch
        elif kind == "window" and (window := _window(record)) is not None:
            losses_not_finite += window.loss is None and "loss" in record
            # A resumed run starts again at its checkpoint: its windows replace those that were lost.
            while windows and windows[-1].step_to >= window.step_from:
                windows.pop()
            windows.append(window)
        elif kind == "wiring" and (picture := read_picture(record)) is not None:
            pictures[picture.epoch] = picture
    notes = _notes(unreadable, filled[-1][0] if filled else -1, losses_not_finite)
    in_order = [epochs[key] for key in sorted(epochs)], windows, [pictures[key] for key in sorted(pictures)]
    return Records(*in_order, notes)


def _notes(unreadable: Sequence[int], last: int, losses_not_finite: int) -> list[str]:
    notes = []
    if last < 0:
        notes.append("metrics.jsonl is empty: there is nothing to plot yet.")
    if last in unreadable:
        why = "the run was interrupted, or is still writing"
        notes.append(f"The last line of metrics.jsonl (line {last + 1}) is cut and was skipped: {why}.")
    others = [str(index + 1) for index in unreadable if index != last]
    if others:
        shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
        notes.append(f"{len(others)} unreadable line(s) of metrics.jsonl were skipped (line {shown}).")
    if losses_not_finite:
        notes.append(f"The loss was not a finite number in {losses_not_finite} recorded window(s); they leave gaps.")
    return notes


def _epoch(record: Mapping[str, Any]) -> Epoch | None:
    epoch = whole(record.get("epoch"))
    if epoch is None:
        return None
    train, test, accuracy = (number(record.get(name)) for name in ("train_loss", "test_loss", "test_accuracy"))
    step, active = whole(record.get("step")), whole(record.get("active"))
    return Epoch(epoch, step, train, test, accuracy, active, numbers(record.get("layer_active")))


def _window(record: Mapping[str, Any]) -> RecordedWindow | None:
    first, last = whole(record.get("step_from")), whole(record.get("step_to"))
    if first is None or last is None or last < first:
        return None
    fewest, most = whole(record.get("active_min")), whole(record.get("active_max"))
    turnover = numbers(record.get("newborns")), numbers(record.get("deaths"))
    return RecordedWindow(first, last, number(record.get("loss")), fewest, most, *turnover)


def read_picture(record: Mapping[str, Any]) -> Picture | None:
    """A "wiring" record; what of it is missing or does not fit together is omitted."""
    epoch, inputs = whole(record.get("epoch")), counts(record.get("inputs"))
    if epoch is None or not inputs:
        return None
    shape = tuple(int(side) for side in numbers(record.get("shape")) if side is not None and side >= 1)
    layers = [_layer(layer) for layer in objects(record.get("layers"))]
    known = tuple(layer for layer in layers if layer is not None)
    return Picture(epoch, inputs, shape, known if len(known) == len(layers) else (), _ages(record.get("ages")))


def _layer(layer: Mapping[str, Any]) -> LayerPicture | None:
    lengths = numbers(layer.get("shape"))
    if len(lengths) != 2:
        return None
    rows, columns = _side(layer, "row", lengths[0]), _side(layer, "column", lengths[1])
    return LayerPicture(words(layer.get("name")), rows, columns) if rows and columns else None


def _side(layer: Mapping[str, Any], name: str, side: float | None) -> Side | None:
    length, found, group = int(side or 0), counts(layer.get(f"{name}s")), whole(layer.get(f"{name}_group", 1))
    if length < 1 or not found or group is None or group < 1 or len(found) != -(-length // group):
        return None
    return Side(found, group, length)


def _ages(value: object) -> Ages | None:
    content = mapping(value)
    starts, first, layers = counts(content.get("from")), counts(content.get("since_start")), content.get("layers")
    if not starts or starts[0] != 0 or list(starts) != sorted(set(starts)) or not isinstance(layers, list):
        return None
    found = tuple(counts(layer) for layer in layers)
    if not found or any(len(layer) != len(starts) for layer in found) or len(first) != len(found):
        return None
    return Ages(starts, found, first)
