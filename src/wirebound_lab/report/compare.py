"""Several runs at the top of the page: a table, all accuracies, and accuracy against connectivity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .charts import Chart, draw
from .curves import PAPER_COLOR, accuracy_series
from .markup import Child, Html, tag
from .run_section import budget_badge
from .runs import Run
from .series import Series
from .wording import MISSING, count, data_name, duration, method_name, percent, share


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: what differs between them, and the folder where that is not enough."""
    aspects: list[Callable[[Run], str]] = [
        lambda run: method_name(run.method),
        lambda run: data_name(run.data),
        lambda run: share(run.connectivity),
        lambda run: f"seed {run.seed}",
        lambda run: f"{run.part} set",
    ]
    varying = [aspect for aspect in aspects if len({aspect(run) for run in runs}) > 1]
    names = [" · ".join(aspect(run) for aspect in varying) for run in runs]
    folders = _folder_names(runs)
    return [
        name if name and names.count(name) == 1 else " · ".join(filter(None, [name, folder]))
        for name, folder in zip(names, folders, strict=True)
    ]


def comparison(runs: Sequence[Run], identifiers: Sequence[str]) -> Html:
    """The section above the single runs."""
    names = labels(runs)
    curves = [
        accuracy_series(run, name, index) for index, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    parts = {run.part for run in runs}
    overlay = Chart(
        "compare-accuracy",
        f"{parts.pop().capitalize()} accuracy" if len(parts) == 1 else "Accuracy",
        "After each epoch, all runs",
        "epoch",
        [curve for curve in curves if curve],
        unit="percent",
        wide=not _varies(runs),
    )
    trade = _trade_off(runs) if _varies(runs) else None
    return tag(
        "section",
        tag("h2", f"{len(runs)} runs compared"),
        _table(runs, identifiers),
        tag("div", draw(overlay), draw(trade) if trade else None, class_="charts"),
        class_="panel compare",
    )


@dataclass(frozen=True)
class Column:
    """One column of the table: its words, and for a column of numbers the number to sort by."""

    name: str
    text: Callable[[Run], Child]
    value: Callable[[Run], float | None] | None = None


def _columns(runs: Sequence[Run]) -> list[Column]:
    """What differs between the runs, and what is always asked."""
    best = max((run.accuracy for run in runs if run.accuracy is not None), default=None)

    def accuracy(run: Run) -> Child:
        text = percent(run.accuracy)
        return tag("strong", text) if run.accuracy is not None and run.accuracy == best else text

    # The first columns are those that a phone shows without scrolling.
    columns = [
        Column("Accuracy", accuracy, lambda run: run.accuracy),
        Column("Connectivity", lambda run: share(run.connectivity), lambda run: run.connectivity),
        Column("Method", lambda run: method_name(run.method)),
        Column("Data", lambda run: data_name(run.data)) if len({run.data for run in runs}) > 1 else None,
        Column("Seed", lambda run: run.seed or MISSING) if len({run.seed for run in runs}) > 1 else None,
        Column("Budget", lambda run: budget_badge(run, "")),
        Column("Active", _active, lambda run: run.active_range[1] if run.active_range else run.budget),
        Column("Paper", lambda run: percent(_paper(run), 1), _paper) if any(map(_paper, runs)) else None,
        Column("Epochs", lambda run: count(run.epochs), lambda run: run.epochs),
        Column("Time", lambda run: duration(run.seconds), lambda run: run.seconds),
    ]
    return [column for column in columns if column]


def _table(runs: Sequence[Run], identifiers: Sequence[str]) -> Html:
    columns = _columns(runs)
    head = [
        tag("th", column.name, scope="col", class_="number" if column.value else None, data_sortable=True)
        for column in (Column("Run", lambda run: run.name), *columns)
    ]
    rows = []
    for run, name, identifier in zip(runs, _folder_names(runs), identifiers, strict=True):
        cells = [
            tag("td", column.text(run), class_="number", data_value=column.value(run))
            if column.value
            else tag("td", column.text(run))
            for column in columns
        ]
        rows.append(tag("tr", tag("th", tag("a", name, href=f"#{identifier}"), scope="row"), *cells))
    caption = tag("caption", "Runs compared", class_="hidden")
    body = tag("table", caption, tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="sortable")
    return tag("div", body, class_="scroll sticky", tabindex=0, role="region", aria_label="Runs compared")


def _paper(run: Run) -> float | None:
    return run.paper.accuracy if run.paper else None


def _active(run: Run) -> str:
    if run.active_range is None:
        return count(run.budget)
    low, high = run.active_range
    return count(low) if low == high else f"{count(low)}–{count(high)}"


def _varies(runs: Sequence[Run]) -> bool:
    return len({run.connectivity for run in runs if run.connectivity and run.accuracy is not None}) > 1


def _trade_off(runs: Sequence[Run]) -> Chart:
    """One curve a method: the mean over seeds, with a band from the worst to the best."""
    groups: dict[str, dict[float, list[float]]] = {}
    several = len({run.data for run in runs}) > 1
    for run in runs:
        if run.connectivity and run.connectivity > 0 and run.accuracy is not None:
            name = method_name(run.method) + (f" · {data_name(run.data)}" if several else "")
            groups.setdefault(name, {}).setdefault(run.connectivity, []).append(run.accuracy)
    curves = []
    for index, (name, group) in enumerate(groups.items()):
        xs = sorted(group)
        curves.append(
            Series(
                name,
                xs,
                [sum(group[x]) / len(group[x]) for x in xs],
                [min(group[x]) for x in xs],
                [max(group[x]) for x in xs],
                color=index,
                marks=True,
            )
        )
    papers = [run.paper for run in runs if run.paper]
    known = {
        (paper.connectivity, paper.accuracy)
        for paper in papers
        if paper.connectivity and paper.connectivity > 0 and paper.accuracy is not None
    }
    if known:
        places = sorted((x, y) for x, y in known if x is not None and y is not None)
        curves.append(
            Series(
                "paper",
                [x for x, _ in places],
                [y for _, y in places],
                color=PAPER_COLOR,
                marks=True,
                line=False,
            )
        )
    xs = [x for curve in curves for x in curve.x]
    return Chart(
        "compare-connectivity",
        "Accuracy against connectivity",
        "Last epoch; the mean over runs that share method and connectivity, the band from worst to best",
        "connectivity",
        curves,
        unit="percent",
        x_unit="percent",
        log_x=max(xs) / min(xs) > 4,
    )


def _folder_names(runs: Sequence[Run]) -> list[str]:
    """Folder names, with as many parents as it takes to tell them apart."""
    parts = [run.folder.parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{run.name} ({index})" for index, run in enumerate(runs, start=1)]
