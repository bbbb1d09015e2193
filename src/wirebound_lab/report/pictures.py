"""What a run recorded of its wiring at the end of an epoch: inputs, rows and columns of each layer, ages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .values import mapping, numbers, objects, whole, words


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


def read_picture(record: Mapping[str, Any]) -> Picture | None:
    """A "wiring" record; what of it is missing or does not fit together is left out."""
    epoch = whole(record.get("epoch"))
    inputs = _counts(record.get("inputs"))
    if epoch is None or not inputs:
        return None
    shape = tuple(int(side) for side in numbers(record.get("shape")) if side is not None and side >= 1)
    layers = [_layer(layer) for layer in objects(record.get("layers"))]
    known = tuple(layer for layer in layers if layer is not None)
    return Picture(epoch, inputs, shape, known if len(known) == len(layers) else (), _ages(record.get("ages")))


def _counts(value: object) -> tuple[int, ...]:
    """Counts of a list; one that is no count is zero, and what is no list is empty."""
    return tuple(max(0, int(item or 0)) for item in numbers(value))


def _layer(layer: Mapping[str, Any]) -> LayerPicture | None:
    sides = numbers(layer.get("shape"))
    if len(sides) != 2 or any(side is None or side < 1 for side in sides):
        return None
    rows = _side(layer, "rows", "row_group", sides[0] or 0)
    columns = _side(layer, "columns", "column_group", sides[1] or 0)
    return LayerPicture(words(layer.get("name")), rows, columns) if rows and columns else None


def _side(layer: Mapping[str, Any], name: str, group_name: str, length: float) -> Side | None:
    counts, group = _counts(layer.get(name)), whole(layer.get(group_name, 1))
    if not counts or group is None or group < 1 or len(counts) != -(-int(length) // group):
        return None
    return Side(counts, group, int(length))


def _ages(value: object) -> Ages | None:
    content = mapping(value)
    starts, layers = _counts(content.get("from")), content.get("layers")
    if not starts or starts[0] != 0 or list(starts) != sorted(set(starts)) or not isinstance(layers, list):
        return None
    counts = tuple(_counts(layer) for layer in layers)
    first = _counts(content.get("since_start"))
    if not counts or any(len(layer) != len(starts) for layer in counts) or len(first) != len(counts):
        return None
    return Ages(starts, counts, first)
