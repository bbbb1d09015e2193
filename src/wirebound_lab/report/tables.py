"""The tables of the page: layers, memory, the paper's figure, settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .markup import Child, Html, fragment, tag
from .runs import Layer, LedgerLine, Paper, Run
from .wording import MISSING, count, percent, points, share, signed, size


def table(
    name: str,
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    texts: int | Collection[int] = 1,
    foot: Sequence[Child] = (),
) -> Html:
    """A table that scrolls by itself when narrow; the first `texts` columns, or those named, hold words, not numbers."""
    words = range(texts) if isinstance(texts, int) else texts

    def line(cells: Sequence[Child]) -> Html:
        first = tag("th", cells[0], scope="row")
        rest = [
            tag("td", cell, class_=None if index in words else "number")
            for index, cell in enumerate(cells[1:], 1)
        ]
        return tag("tr", first, *rest)

    heads = [
        tag("th", cell, scope="col", class_=None if index in words else "number")
        for index, cell in enumerate(head)
    ]
    body = tag(
        "table",
        tag("caption", name, class_="hidden"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(line(row) for row in rows)),
        tag("tfoot", line(foot)) if foot else None,
    )
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=name)


def layer_table(layers: Sequence[Layer]) -> Html | None:
    if not layers:
        return None

    def row(
        name: str, shape: str, possible: int | None, initial: int | None, final: int | None
    ) -> list[Child]:
        change = None if initial is None or final is None else final - initial
        connectivity = final / possible if final is not None and possible else None
        last = fragment(bar(connectivity), tag("span", share(connectivity), class_="beside-bar"))
        return [name, shape, count(possible), count(initial), count(final), signed(change), last]

    rows = [
        row(layer.name, _shape(layer.shape), layer.possible, layer.initial, layer.final) for layer in layers
    ]
    foot: list[Child] = []
    if len(layers) > 1:
        totals = (_total([layer.possible for layer in layers]), _total([layer.initial for layer in layers]))
        foot = row("All layers", "", *totals, _total([layer.final for layer in layers]))
    head = [
        "Layer",
        "In \u2192 out",
        "Possible",
        "At the start",
        "At the end",
        "Change",
        "Connectivity at the end",
    ]
    return table("Connections per layer", head, rows, texts=2, foot=foot)


def ledger_table(ledger: Sequence[LedgerLine]) -> Html | None:
    if not ledger:
        return None
    total = _total([line.bytes for line in ledger])

    def part(line: LedgerLine) -> Html:
        value = line.bytes / total if total and line.bytes is not None else None
        return fragment(bar(value), tag("span", size(line.bytes), class_="beside-bar"))

    rows: list[list[Child]] = [[line.part, line.note, count(line.bytes), part(line)] for line in ledger]
    head = ["Part", "What it is", "Bytes", "Size"]
    return table("Memory ledger", head, rows, texts=2, foot=["All parts", "", count(total), size(total)])


def paper_table(run: Run, paper: Paper) -> Html:
    def gap(mine: float | None, theirs: float | None) -> float | None:
        return None if mine is None or theirs is None else mine - theirs

    rows: list[list[Child]] = [
        ["This run", percent(run.accuracy), share(run.connectivity)],
        ["Paper", percent(paper.accuracy), share(paper.connectivity)],
        [
            "Difference",
            points(gap(run.accuracy, paper.accuracy)),
            points(gap(run.connectivity, paper.connectivity)),
        ],
    ]
    words = [word for word in (paper.claim, f"Source: {paper.source}" if paper.source else None) if word]
    return fragment(
        tag("h3", "Beside the paper"),
        *(tag("p", word, class_="hint") for word in words),
        table("This run beside the paper's figure", ["", "Accuracy", "Connectivity"], rows),
    )


def settings(name: str, values: Mapping[str, Any]) -> Html | None:
    """A definition list of plain settings; what is nested is shown as JSON."""
    if not values:
        return None
    items = [tag("div", tag("dt", key), tag("dd", _plain(value))) for key, value in sorted(values.items())]
    return fragment(tag("h4", name) if name else None, tag("dl", *items, class_="settings"))


def bar(fraction: float | None) -> Html | None:
    """A small bar, only for the eye: the number stands beside it."""
    if fraction is None:
        return None
    width = 100 * min(1.0, max(0.0, fraction))
    return tag("span", tag("span", style=f"width:{width:.2f}%"), class_="bar", aria_hidden="true")


def _plain(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shape(shape: Sequence[int]) -> str:
    """The file has [out, in, ...], as torch does; a reader follows the signal."""
    if len(shape) == 2:
        return f"{count(shape[1])} \u2192 {count(shape[0])}"
    return " \u00d7 ".join(count(side) for side in shape) if shape else MISSING


def _total(values: Sequence[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
