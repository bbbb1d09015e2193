"""The picture of which inputs a network is wired to, before, after and during training."""

import math
from collections.abc import Callable, Iterable, Sequence

from .markup import Html, data_block, fragment, tag
from .records import Picture
from .wording import count

# Colours of the style sheet: q1..q10 for counts (q0 is no connection), half as many each way for differences.
LEVELS = 10
LARGEST_SIDE = 64
Level = Callable[[int], int]  # from the number of a cell to its colour


def draw_pictures(pictures: Sequence[Picture], identifier: str) -> Html:
    """The map that follows the slider, and first, last and difference as still pictures beside it."""
    grids = [arrange(picture.inputs, pictures[-1].shape) for picture in pictures]
    frames, (_, rows, columns, pooled) = [grid[0] for grid in grids], grids[-1]
    cap = _cap(value for frame in frames for value in frame)
    change = [new - old for new, old in zip(frames[-1], frames[0], strict=True)]
    change_cap = _cap(map(abs, change))
    said = [f"{count(sum(value == 0 for value in frame))} of {count(len(frame))} unused" for frame in frames]

    def level(value: int) -> int:
        return min(LEVELS, math.ceil(LEVELS * value / cap))

    def change_level(value: int) -> int:
        half = LEVELS // 2
        return int(math.copysign(min(half, math.ceil(half * abs(value) / change_cap)), value))

    def still(end: str, name: str, frame: Sequence[int], words: str, prefix: str = "q", of: Level = level) -> Html:
        title = f"Connections of each input, {name}: {words}"
        drawing = _map(frame, rows, columns, prefix, of, title, f"{identifier}-{end}")
        return tag("figure", drawing, tag("figcaption", tag("strong", name), tag("span", words)))

    stills = [still("first", pictures[0].when, frames[0], said[0])]
    highest = f"\u2265\u202f{count(cap)}" if max(map(max, frames)) > cap else count(cap)
    keys = [_key("q", range(LEVELS + 1), "0", f"{highest} connections")]
    moving = None
    if len(pictures) > 1:
        gained, lost = (sum(sign * value > 0 for value in change) for sign in (1, -1))
        stills.append(still("last", pictures[-1].when, frames[-1], said[-1]))
        words = f"{count(gained)} gained, {count(lost)} lost"
        stills.append(still("change", "Difference", change, words, "d", change_level))
        steps = range(-LEVELS // 2, LEVELS // 2 + 1)
        keys.append(_key("d", steps, f"\u2212{change_cap}", f"+{change_cap} difference"))
        data = {"rows": rows, "columns": columns, "cap": cap, "levels": LEVELS, "words": said, "frames": frames}
        moving = tag(
            "figure",
            _map(frames[-1], rows, columns, "q", level, "Connections of each input at the epoch of the slider"),
            tag("figcaption", tag("span", said[-1], class_="map-words")),
            tag("p", "\u00a0", class_="cell-readout", aria_hidden="true"),
            data_block(data, "heat-data"),
            class_="moving script-only",
        )
    hint = "Each square is one input; its colour says how many connections of the first layer start there."
    notes = tag("p", hint + (f" Squares stand for {pooled}\u00d7{pooled} inputs." if pooled > 1 else ""), class_="hint")
    beside = tag("div", tag("div", *stills, class_="stills"), tag("div", *keys, class_="keys"))
    return fragment(notes, tag("div", moving, beside, class_="wiring"))


def _map(
    frame: Sequence[int], rows: int, columns: int, prefix: str, level: Level, title: str, identifier: str | None = None
) -> Html:
    """One path for each colour, neighbours in one rectangle; without an identifier, the map that the script redraws."""
    paths: dict[int, list[str]] = {}
    for line in range(rows):
        row = [level(value) for value in frame[line * columns : (line + 1) * columns]]
        begin = 0
        for index in range(1, len(row) + 1):
            if index == len(row) or row[index] != row[begin]:
                if row[begin]:
                    width = index - begin
                    paths.setdefault(row[begin], []).append(f"M{begin} {line}h{width}v1h-{width}z")
                begin = index
    cells = [tag("path", d="".join(parts), class_=_color(prefix, key)) for key, parts in sorted(paths.items())]
    return tag(
        "svg",
        tag("title", title, id=identifier) if identifier else None,
        tag("rect", width=columns, height=rows, class_="q0"),
        tag("g", *cells, class_="cells"),
        viewBox=f"0 0 {columns} {rows}", role="img", aria_labelledby=identifier,
        aria_label=None if identifier else title, class_="map",
    )  # fmt: skip


def arrange(inputs: Sequence[int], shape: Sequence[int]) -> tuple[list[int], int, int, int]:
    """Channels are added up, large grids pooled: cells row by row, rows, columns, and the side of a pooled square."""
    cells = list(inputs)
    sides = [side for side in shape if side > 1]
    if math.prod(shape or (0,)) != len(cells) or len(sides) > 3:
        sides = [len(cells)]
    if len(sides) == 3:
        first, second, third = sides
        if third <= 4 < first:  # channels last, an image as stored
            cells, sides = [sum(cells[index : index + third]) for index in range(0, len(cells), third)], [first, second]
        else:  # channels first, as in torch
            area = second * third
            cells, sides = [sum(cells[index::area]) for index in range(area)], [second, third]
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


def _cap(values: Iterable[int]) -> int:
    """The count that gets the strongest colour: a few outliers must not make everything else pale."""
    above = sorted(value for value in values if value > 0)
    return above[min(len(above) - 1, math.ceil(0.995 * len(above)))] if above else 1


def _color(prefix: str, level: int) -> str:
    return f"{prefix}n{-level}" if level < 0 else f"{prefix}{level}" if level else "q0"


def _key(prefix: str, levels: Sequence[int], low: str, high: str) -> Html:
    swatches = [tag("span", class_=_color(prefix, level)) for level in levels]
    ramp = tag("span", *swatches, class_="ramp", aria_hidden="true")
    return tag("p", tag("span", low), ramp, tag("span", high), class_="key")
