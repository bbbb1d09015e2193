"""The picture of which inputs a network is wired to, before, after and during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .markup import Html, data_block, fragment, tag
from .records import Picture
from .wording import count

# Colours of the style sheet: q1..q10 for counts (q0 is no connection), half as many each way for differences.
LEVELS = 10
LARGEST_SIDE = 64
Level = Callable[[int], int]  # from the number of a cell to its colour


@dataclass(frozen=True)
class _Grid:
    """Rows and columns of a map: draws one from a colour for each cell."""

    rows: int
    columns: int

    def draw(self, frame: Sequence[int], prefix: str, level: Level, title: str, identifier: str | None = None) -> Html:
        """Without an identifier it is the map that the script redraws, which its figure names."""
        return tag(
            "svg",
            tag("title", title, id=identifier) if identifier else None,
            tag("rect", width=self.columns, height=self.rows, class_="q0"),
            tag("g", *self._paths(frame, prefix, level), class_="cells"),
            viewBox=f"0 0 {self.columns} {self.rows}",
            role="img",
            aria_labelledby=identifier,
            aria_label=None if identifier else title,
            class_="map",
        )

    def _paths(self, frame: Sequence[int], prefix: str, level: Level) -> list[Html]:
        """One path for each colour; neighbours of one colour in a line are one rectangle."""
        paths: dict[int, list[str]] = {}
        for line in range(self.rows):
            row = [level(value) for value in frame[line * self.columns : (line + 1) * self.columns]]
            begin = 0
            for index in range(1, len(row) + 1):
                if index == len(row) or row[index] != row[begin]:
                    if row[begin]:
                        width = index - begin
                        paths.setdefault(row[begin], []).append(f"M{begin} {line}h{width}v1h-{width}z")
                    begin = index
        return [tag("path", d="".join(parts), class_=_color(prefix, key)) for key, parts in sorted(paths.items())]


def draw_pictures(pictures: Sequence[Picture], identifier: str) -> Html:
    """The map that follows the slider, and first, last and difference as still pictures beside it."""
    shape = pictures[-1].shape
    grids = [arrange(picture.inputs, shape) for picture in pictures]
    frames, (_, rows, columns, pooled) = [grid[0] for grid in grids], grids[-1]
    grid, several = _Grid(rows, columns), len(pictures) > 1
    cap = _cap([value for frame in frames for value in frame])
    change = [new - old for new, old in zip(frames[-1], frames[0], strict=True)]
    change_cap = _cap([abs(value) for value in change])

    def level(value: int) -> int:
        return _level(value, cap, LEVELS)

    def change_level(value: int) -> int:
        return int(math.copysign(_level(abs(value), change_cap, LEVELS // 2), value))

    def still(end: str, name: str, frame: Sequence[int], words: str, prefix: str = "q", of: Level = level) -> Html:
        drawing = grid.draw(frame, prefix, of, f"Connections of each input, {name}: {words}", f"{identifier}-{end}")
        return tag("figure", drawing, tag("figcaption", tag("strong", name), tag("span", words)))

    stills = [still("first", when(pictures[0]), frames[0], _unwired(frames[0]))]
    highest = f"\u2265\u202f{count(cap)}" if max(map(max, frames)) > cap else count(cap)
    keys = [_key("q", range(LEVELS + 1), "0", f"{highest} connections")]
    moving = None
    if several:
        gained, lost = (sum(sign * value > 0 for value in change) for sign in (1, -1))
        words = f"{count(gained)} gained, {count(lost)} lost"
        stills.append(still("last", when(pictures[-1]), frames[-1], _unwired(frames[-1])))
        stills.append(still("change", "Difference", change, words, "d", change_level))
        steps = range(-LEVELS // 2, LEVELS // 2 + 1)
        keys.append(_key("d", steps, f"\u2212{change_cap}", f"+{change_cap} difference"))
        said = [_unwired(frame) for frame in frames]
        data = {"rows": rows, "columns": columns, "cap": cap, "levels": LEVELS, "words": said, "frames": frames}
        moving = tag(
            "figure",
            grid.draw(frames[-1], "q", level, "Connections of each input at the epoch of the slider"),
            tag("figcaption", tag("span", said[-1], class_="map-words")),
            tag("p", "\u00a0", class_="cell-readout", aria_hidden="true"),
            data_block(data, "heat-data"),
            class_="moving script-only",
        )
    notes = tag(
        "p",
        "Each square is one input; its colour says how many connections of the first layer start there.",
        f" Squares stand for {pooled}\u00d7{pooled} inputs." if pooled > 1 else None,
        class_="hint",
    )
    beside = tag("div", tag("div", *stills, class_="stills"), tag("div", *keys, class_="keys"))
    return fragment(notes, tag("div", moving, beside, class_="wiring"))


def arrange(inputs: Sequence[int], shape: Sequence[int]) -> tuple[list[int], int, int, int]:
    """Counts on a grid of rows and columns: channels are added up, large grids are pooled in squares.

    Returns the cells row by row, the number of rows, of columns, and the side of a pooled square.
    """
    cells = list(inputs)
    sides = [side for side in shape if side > 1]
    if math.prod(shape or (0,)) != len(cells) or len(sides) > 3:
        sides = [len(cells)]
    if len(sides) == 3:
        cells, sides = _add_channels(cells, sides)
    if len(sides) == 2:
        rows, columns = sides
    else:
        # No picture: one line, or for many inputs a square, filled line by line.
        columns = len(cells) if len(cells) <= LARGEST_SIDE else math.ceil(math.sqrt(len(cells)))
        rows = math.ceil(len(cells) / columns)
        cells += [0] * (rows * columns - len(cells))
    side = math.ceil(max(rows, columns) / LARGEST_SIDE)
    if side == 1:
        return cells, rows, columns, 1
    height, width = math.ceil(rows / side), math.ceil(columns / side)
    pooled = [0] * (height * width)
    for index, value in enumerate(cells):
        row, column = divmod(index, columns)
        pooled[row // side * width + column // side] += value
    return pooled, height, width, side


def _add_channels(cells: Sequence[int], sides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Channels last if the last side is the small one (an image as stored), otherwise first (as in torch)."""
    first, second, third = sides
    if third <= 4 < first:
        return [sum(cells[index : index + third]) for index in range(0, len(cells), third)], [first, second]
    area = second * third
    return [sum(cells[index::area]) for index in range(area)], [second, third]


def _cap(values: Sequence[int]) -> int:
    """The count that gets the strongest colour: a few outliers must not make everything else pale."""
    above = sorted(value for value in values if value > 0)
    return above[min(len(above) - 1, math.ceil(0.995 * len(above)))] if above else 1


def _level(value: int, cap: int, levels: int) -> int:
    return min(levels, math.ceil(levels * value / cap)) if value > 0 else 0


def _color(prefix: str, level: int) -> str:
    return f"{prefix}n{-level}" if level < 0 else f"{prefix}{level}"


def _unwired(frame: Sequence[int]) -> str:
    return f"{count(sum(value == 0 for value in frame))} of {count(len(frame))} unused"


def _key(prefix: str, levels: Sequence[int], low: str, high: str) -> Html:
    swatches = [tag("span", class_=_color(prefix, level) if level else "q0") for level in levels]
    ramp = tag("span", *swatches, class_="ramp", aria_hidden="true")
    return tag("p", tag("span", low), ramp, tag("span", high), class_="key")


def when(picture: Picture) -> str:
    """The epoch of a picture in words."""
    return "Before training" if picture.epoch == 0 else f"After epoch {picture.epoch}"
