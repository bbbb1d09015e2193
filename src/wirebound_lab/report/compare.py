"""Several runs at the top of the page: a table, all accuracies, and accuracy against connectivity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .charts import Chart, Series, draw
from .markup import Child, Html, scroll_table, tag
from .run_charts import PAPER_COLOR, accuracy_series
from .run_section import budget_badge
from .runs import Run
from .wording import MISSING, count, counts, data_name, duration, joined, percent, share


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: what differs between them, and the folder where that is not enough."""
    aspects = [
        (run.title, data_name(run.data), share(run.connectivity), f"seed {run.seed}", f"{run.part} set") for run in runs
    ]
    varying = [len(set(values)) > 1 for values in zip(*aspects, strict=True)]
    names = [joined(*(value for value, varies in zip(row, varying, strict=True) if varies)) for row in aspects]
    folders = _folder_names(runs)
    return [
        name if name and names.count(name) == 1 else joined(name, folder)
        for name, folder in zip(names, folders, strict=True)
    ]


def comparison(runs: Sequence[Run], identifiers: Sequence[str]) -> Html:
    """The section above the single runs."""
    named = enumerate(zip(runs, labels(runs), strict=True))
    curves = [accuracy_series(run, name, index) for index, (run, name) in named]
    parts = {run.part for run in runs}
    title = f"{parts.pop().capitalize()} accuracy" if len(parts) == 1 else "Accuracy"
    varies = len({run.connectivity for run in runs if run.connectivity and run.accuracy is not None}) > 1
    drawn = [curve for curve in curves if curve]
    overlay = Chart(
        "compare-accuracy", title, "After each epoch, all runs", "epoch", drawn, unit="percent", wide=not varies
    )
    charts = tag("div", draw(overlay), draw(_trade_off(runs)) if varies else None, class_="charts")
    heading = tag("h2", f"{len(runs)} runs compared")
    return tag("section", heading, _table(runs, identifiers), charts, class_="panel compare")


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

    def active(run: Run) -> str:
        return counts(*run.active_range) if run.active_range else count(run.budget)

    # The first columns are those that a phone shows without scrolling.
    columns = [
        Column("Accuracy", accuracy, lambda run: run.accuracy),
        Column("Connectivity", lambda run: share(run.connectivity), lambda run: run.connectivity),
        Column("Method", lambda run: run.title),
        Column("Data", lambda run: data_name(run.data)) if len({run.data for run in runs}) > 1 else None,
        Column("Seed", lambda run: run.seed or MISSING) if len({run.seed for run in runs}) > 1 else None,
        Column("Budget", lambda run: budget_badge(run, "")),
        Column("Active", active, lambda run: run.active_range[1] if run.active_range else run.budget),
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
            tag("td", column.text(run), class_="number", data_value=column.value(run)) if column.value
            else tag("td", column.text(run))
            for column in columns
        ]  # fmt: skip
        rows.append(tag("tr", tag("th", tag("a", name, href=f"#{identifier}"), scope="row"), *cells))
    thead = tag("thead", tag("tr", *head))
    return scroll_table("Runs compared", thead, tag("tbody", *rows), frame="scroll sticky", class_="sortable")


def _paper(run: Run) -> float | None:
    return run.paper.accuracy if run.paper else None


def _trade_off(runs: Sequence[Run]) -> Chart:
    """One curve a method: the mean over seeds, with a band from the worst to the best."""
    groups: dict[str, dict[float, list[float]]] = {}
    papers: set[tuple[float, float]] = set()
    several = len({run.data for run in runs}) > 1
    for run in runs:
        if run.connectivity and run.connectivity > 0 and run.accuracy is not None:
            name = joined(run.title, data_name(run.data) if several else None)
            groups.setdefault(name, {}).setdefault(run.connectivity, []).append(run.accuracy)
        paper = run.paper
        if paper and paper.connectivity and paper.connectivity > 0 and paper.accuracy is not None:
            papers.add((paper.connectivity, paper.accuracy))
    curves = []
    for index, (name, group) in enumerate(groups.items()):
        xs = sorted(group)
        means = [sum(group[x]) / len(group[x]) for x in xs]
        lows, highs = [min(group[x]) for x in xs], [max(group[x]) for x in xs]
        curves.append(Series(name, xs, means, lows, highs, color=index, marks=True))
    if papers:
        xs, accuracies = [x for x, _ in sorted(papers)], [y for _, y in sorted(papers)]
        curves.append(Series("paper", xs, accuracies, color=PAPER_COLOR, marks=True, line=False))
    xs = [x for curve in curves for x in curve.x]
    subtitle = "Last epoch; the mean over runs that share method and connectivity, the band from worst to best"
    return Chart(
        "compare-connectivity", "Accuracy against connectivity", subtitle, "connectivity", curves,
        unit="percent", x_unit="percent", log_x=max(xs) / min(xs) > 4,
    )  # fmt: skip


def _folder_names(runs: Sequence[Run]) -> list[str]:
    """Folder names, with as many parents as it takes to tell them apart."""
    parts = [run.folder.parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{run.name} ({index})" for index, run in enumerate(runs, start=1)]
