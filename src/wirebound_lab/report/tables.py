"""The tables of the page: layers, memory, the paper's figure, settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .markup import Child, Html, fragment, scroll_table, tag, tag_if
from .runs import LedgerLine, Paper, Run, RunLayer
from .wording import MISSING, count, percent, points, share, signed, size

Cells = Sequence[Child]


def table(
    name: str, head: Cells, rows: Sequence[Cells], *, texts: int | Collection[int] = 1, foot: Cells = ()
) -> Html:
    """A table in which the first `texts` columns, or those named, hold words, not numbers."""
    words = range(texts) if isinstance(texts, int) else texts
    classes = [None if index in words else "number" for index in range(len(head))]

    def line(cells: Cells) -> Html:
        rest = [tag("td", cell, class_=class_) for cell, class_ in zip(cells[1:], classes[1:], strict=True)]
        return tag("tr", tag("th", cells[0], scope="row"), *rest)

    heads = [tag("th", cell, scope="col", class_=class_) for cell, class_ in zip(head, classes, strict=True)]
    body = tag("tbody", *(line(row) for row in rows))
    return scroll_table(name, tag("thead", tag("tr", *heads)), body, tag("tfoot", line(foot)) if foot else None)


def layer_table(layers: Sequence[RunLayer]) -> Html | None:
    if not layers:
        return None

    def row(name: str, shape: str, possible: int | None, initial: int | None, final: int | None) -> list[Child]:
        connectivity = final / possible if final is not None and possible else None
        counts = [count(possible), count(initial), count(final), signed(_difference(final, initial))]
        return [name, shape, *counts, _with_bar(connectivity, share(connectivity))]

    rows = [row(layer.name, _shape(layer.shape), layer.possible, layer.initial, layer.final) for layer in layers]
    columns = zip(*((layer.possible, layer.initial, layer.final) for layer in layers), strict=True)
    foot = row("All layers", "", *map(_total, columns)) if len(layers) > 1 else []
    head = ["Layer", "In \u2192 out", "Possible", "At the start", "At the end", "Change", "Connectivity at the end"]
    return table("Connections per layer", head, rows, texts=2, foot=foot)


def ledger_table(ledger: Sequence[LedgerLine]) -> Html | None:
    if not ledger:
        return None
    total = _total([line.bytes for line in ledger])
    rows: list[list[Child]] = []
    for line in ledger:
        part = line.bytes / total if total and line.bytes is not None else None
        rows.append([line.part, line.note, count(line.bytes), _with_bar(part, size(line.bytes))])
    foot = ["All parts", "", count(total), size(total)]
    return table("Memory ledger", ["Part", "What it is", "Bytes", "Size"], rows, texts=2, foot=foot)


def paper_table(run: Run, paper: Paper) -> Html:
    gaps = (_difference(run.accuracy, paper.accuracy), _difference(run.connectivity, paper.connectivity))
    rows: list[list[Child]] = [
        ["This run", percent(run.accuracy), share(run.connectivity)],
        ["Paper", percent(paper.accuracy), share(paper.connectivity)],
        ["Difference", *map(points, gaps)],
    ]
    return fragment(
        tag("h3", "Beside the paper"),
        tag_if("p", paper.claim, class_="hint"),
        tag("p", f"Source: {paper.source}", class_="hint") if paper.source else None,
        table("This run beside the paper's figure", ["", "Accuracy", "Connectivity"], rows),
    )


def settings(name: str, values: Mapping[str, Any]) -> Html | None:
    """A definition list of plain settings; what is nested is shown as JSON."""
    if not values:
        return None
    items = [tag("div", tag("dt", key), tag("dd", _plain(value))) for key, value in sorted(values.items())]
    return fragment(tag_if("h4", name), tag("dl", *items, class_="settings"))


def _with_bar(fraction: float | None, words: str) -> Html:
    """A small bar, only for the eye: the number stands beside it."""
    bar = None
    if fraction is not None:
        width = 100 * min(1.0, max(0.0, fraction))
        bar = tag("span", tag("span", style=f"width:{width:.2f}%"), class_="bar", aria_hidden="true")
    return fragment(bar, tag("span", words, class_="beside-bar"))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shape(shape: Sequence[int]) -> str:
    """The file has [out, in, ...], as torch does; a reader follows the signal."""
    if len(shape) == 2:
        return f"{count(shape[1])} \u2192 {count(shape[0])}"
    return " \u00d7 ".join(count(side) for side in shape) if shape else MISSING


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _total(values: Sequence[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
