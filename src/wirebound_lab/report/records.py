"""What a run wrote into metrics.jsonl, every value checked. Unknown kinds and keys are ignored. A killed run leaves a
cut line, a resumed one repeats steps: unreadable lines are skipped and counted, of repeated records the last counts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 1e150  # squares and quotients of such numbers are still numbers, so an axis can be made for them


def number(value: object) -> float | None:
    """A finite float, or None; what is beyond any axis is no number, and what is below any is 0."""
    # Python's JSON reader lets NaN and Infinity through, and integers beyond the range of a float.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        return None
    return float(value) if abs(value) >= 1 / LARGEST else 0.0


def whole(value: object) -> int | None:
    result = number(value)
    return int(result) if result is not None and result == int(result) else None


def numbers(value: object) -> tuple[float | None, ...]:
    return tuple(number(item) for item in value) if isinstance(value, list) else ()


def counts(value: object) -> tuple[int, ...]:
    """The counts of a list: what is no count is zero, and what is no list is empty."""
    return tuple(max(0, int(item or 0)) for item in numbers(value))


def words(value: object) -> str | None:
    """A text that is not empty, or None; numbers are accepted as texts."""
    return None if value is None or isinstance(value, (dict, list)) else str(value).strip() or None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class Epoch(NamedTuple):
    epoch: int
    step: int | None
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    active: int | None
    layer_active: tuple[float | None, ...]


class RecordedWindow(NamedTuple):
    """Steps step_from to step_to, both included; `deaths` is empty where they were not counted."""

    step_from: int
    step_to: int
    loss: float | None
    active_min: int | None
    active_max: int | None
    newborns: tuple[float | None, ...]
    deaths: tuple[float | None, ...]

    @property
    def steps(self) -> int:
        return self.step_to - self.step_from + 1


class Side(NamedTuple):
    """Connections of the rows or of the columns of a layer, in groups of neighbours; the last may be smaller."""

    counts: tuple[int, ...]
    group: int
    length: int

    def sizes(self) -> list[int]:
        return [min(self.group, self.length - index * self.group) for index in range(len(self.counts))]

    def means(self) -> list[float]:
        """Connections of one row or column, by group."""
        return [value / size for value, size in zip(self.counts, self.sizes(), strict=True)]


class LayerPicture(NamedTuple):
    name: str | None
    rows: Side
    columns: Side


class Ages(NamedTuple):
    """Connections of each layer by age in epochs; `starts` are the lowest ages of the bins."""

    starts: tuple[int, ...]
    layers: tuple[tuple[int, ...], ...]
    since_start: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(map(sum, self.layers))


class Picture(NamedTuple):
    """The wiring after an epoch; epoch 0 is before training. `inputs` are those of the first layer, one by one."""

    epoch: int
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    layers: tuple[LayerPicture, ...] = ()
    ages: Ages | None = None

    @property
    def when(self) -> str:
        return "Before training" if self.epoch == 0 else f"After epoch {self.epoch}"


@dataclass
class Records:
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
    return Records([epochs[key] for key in sorted(epochs)], windows, [pictures[key] for key in sorted(pictures)], notes)


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
    epoch, step, active = (whole(record.get(name)) for name in ("epoch", "step", "active"))
    train, test, accuracy = (number(record.get(name)) for name in ("train_loss", "test_loss", "test_accuracy"))
    layers = numbers(record.get("layer_active"))
    return None if epoch is None else Epoch(epoch, step, train, test, accuracy, active, layers)


def _window(record: Mapping[str, Any]) -> RecordedWindow | None:
    names = ("step_from", "step_to", "active_min", "active_max")
    first, last, fewest, most = (whole(record.get(name)) for name in names)
    if first is None or last is None or last < first:
        return None
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
