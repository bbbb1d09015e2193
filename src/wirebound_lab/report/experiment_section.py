"""One reproduced figure on the page: the claim, the figure, what came of it, the tables, the settings."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .charts import COLORS, Chart, Series, draw
from .experiments import AnyChart, Experiment, FigureLine, Finding, GridChart, Label, LinesChart, Point, ResultTable
from .heatmap import LEVELS
from .markup import Child, Html, figure, fragment, no_figure, scroll_table, settings, table, tag, tag_if
from .wording import MISSING, NARROW, joined, percent, plain_name, plural, tick, unbroken

_NUMBER = re.compile(r"[<>≤≥~≈+\u2212-]?\s*[\d.,]+\s*(?:e[+-]?\d+)?\s*(?:%|±.*|[a-zµ]{1,3})?")
# Whether a claim holds: its sign, the words for one claim and for several, and the class.
VERDICTS: Mapping[bool | None, tuple[str, str, str, str]] = {
    True: ("✓", "holds", "hold", "badge good"),
    False: ("✗", "does not hold", "do not hold", "badge bad"),
    None: ("?", "not decided", "not decided", "badge"),
}
# A method has one colour in all figures; the last, quiet one is for what the others are measured against.
METHOD_COLORS = {
    "deepr": 0, "softdeepr": 1, "pruning": 2, "magnitudepruning": 2, "l1shrinkage": 3, "constantrate": 4, "set": 5,
    "fixed": 6, "rigl": 4, "dense": 7,
}  # fmt: skip
MARKED = 30  # points of a line with marks and whiskers; more would hide it, and it gets a band


def anchors(experiments: Sequence[Experiment]) -> list[str]:
    """A name for each section, from the experiment's where it makes one."""
    names: list[str] = []
    for index, experiment in enumerate(experiments, 1):
        slug = f"experiment-{experiment.name}"
        names.append(slug if re.fullmatch(r"[\w-]+", slug) and slug not in names else f"experiment-{index}")
    return names if len(set(names)) == len(names) else [f"experiment-{index}" for index in range(1, len(names) + 1)]


def experiment_section(experiment: Experiment, identifier: str, run_links: Mapping[Path, str]) -> Html:
    """The section; `run_links` says where on the page a run folder is."""
    scale = f"Scale: {experiment.scale}" if experiment.scale else None
    seeds = plural(experiment.seeds, "seed") if experiment.seeds is not None else None
    hours = f"{plural(experiment.counted, 'run')}, {experiment.hours:.1f} hours of one core" if experiment.counted and experiment.hours else None
    claim = tag("p", "The paper says", class_="label"), tag_if("p", experiment.claim)
    code = tag("pre", tag("code", experiment.command), tabindex=0, role="region", aria_label="Command")
    # Curves stand two in a row unless there is only one chart of them.
    wide = sum(isinstance(chart, LinesChart) for chart in experiment.charts) == 1
    charts = [_draw(chart, f"{identifier}-chart-{index}", wide) for index, chart in enumerate(experiment.charts, 1)]
    return tag(
        "section",
        tag("p", joined(experiment.paper, experiment.name), class_="kicker"),
        tag("h2", experiment.title, id=f"{identifier}-title"),
        tag("div", *claim, class_="claim") if experiment.claim else None,
        tag_if("p", joined(scale, experiment.scale_note, seeds, hours), class_="hint scale"),
        tag_if("div", fragment(*charts), class_="charts"),
        _findings(experiment.findings),
        *map(_table, experiment.tables),
        _runs(experiment, run_links),
        tag("section", tag("h3", "Made with"), code) if experiment.command else None,
        _settings(experiment),
        id=identifier, class_="panel experiment", aria_labelledby=f"{identifier}-title",
    )  # fmt: skip


def verdict_badges(findings: Sequence[Finding]) -> Html | None:
    """How many claims hold, at a glance: a sign, a number and a colour each."""
    parts = []
    for holds, (sign, one, several, class_) in VERDICTS.items():
        number = sum(finding.holds is holds for finding in findings)
        if number:
            parts.append(tag("span", f"{sign} {number} {one if number == 1 else several}", class_=class_))
    return tag_if("span", fragment(*parts), class_="badges")


def _findings(findings: Sequence[Finding]) -> Html | None:
    """A table; on a phone each line of it becomes a block, so the roles are said: browsers forget them then."""
    if not findings:
        return None
    head = {"Claim": None, "Holds": None, "Paper": None, "Here": None, "Seeds": "number"}
    rows = []
    for finding in findings:
        sign, word, _, class_ = VERDICTS[finding.holds]
        why = f"the paper's statement does not hold: {finding.see} says why" if finding.see and finding.holds is False else None
        test = finding.test and f"test: {unbroken(finding.test)}"
        remark = tag_if("span", joined(test, finding.note and unbroken(finding.note), why), class_="remark")
        claim = tag("th", fragment(unbroken(finding.claim), remark), scope="row", role="rowheader")
        paper, ours = (unbroken(text or MISSING) for text in (finding.paper, finding.ours))
        seeds = MISSING if finding.seeds is None else finding.seeds
        cells: list[Child] = [tag("span", f"{sign} {word}", class_=class_), paper, ours, seeds]
        named = zip(list(head)[1:], cells, strict=True)
        rest = [tag("td", cell, role="cell", data_label=name, class_=head[name]) for name, cell in named]
        rows.append(tag("tr", claim, *rest, role="row"))
    heads = [tag("th", name, scope="col", role="columnheader", class_=class_) for name, class_ in head.items()]
    thead = tag("thead", tag("tr", *heads, role="row"), role="rowgroup")
    title = "Claims of the paper and what came out here"
    content = scroll_table(title, thead, tag("tbody", *rows, role="rowgroup"), role="table")
    return tag("section", tag("h3", "What came of it"), content, class_="findings")


def _table(item: ResultTable) -> Html:
    """Columns of numbers are set to the right, whatever stands in the file."""

    def is_number(cell: str) -> bool:
        return not cell or cell in ("-", MISSING) or _NUMBER.fullmatch(cell.strip()) is not None

    columns = range(len(item.columns))
    texts = {index for index in columns if index == 0 or not all(is_number(row[index]) for row in item.rows)}
    head, *rows = [[unbroken(cell) for cell in row] for row in (item.columns, *item.rows)]
    content = table(item.title, head, rows, texts=texts) if head else None
    return tag("section", tag("h3", item.title), content, tag_if("p", item.note, class_="hint under"), class_="result")


def _runs(experiment: Experiment, run_links: Mapping[Path, str]) -> Html | None:
    if not experiment.runs:
        return None
    folders = [(run, folder.resolve()) for run, folder in zip(experiment.runs, experiment.run_folders, strict=True)]
    links = [tag("li", tag("a", run, href=f"#{run_links[at]}")) for run, at in folders if at in run_links]
    lost = len(experiment.runs) - len(links)
    note = f"{plural(lost, 'run folder')} not kept with the results." if lost else None
    listed = tag_if("ul", fragment(*links), class_="links")
    return tag("section", tag("h3", "Runs"), listed, tag_if("p", note, class_="hint under"))


def _settings(experiment: Experiment) -> Html | None:
    """Plain settings together, each nested object as a group of its own."""
    if not experiment.settings:
        return None
    groups = {key: value for key, value in experiment.settings.items() if isinstance(value, dict)}
    plain = {key: value for key, value in experiment.settings.items() if key not in groups}
    body = [settings("General" if groups else "", plain), *(settings(key, value) for key, value in groups.items())]
    return tag("details", tag("summary", "Settings"), *body, class_="more")


def _draw(chart: AnyChart, identifier: str, wide: bool) -> Html:
    if isinstance(chart, LinesChart):
        return draw(lines_chart(chart, identifier, wide))
    if isinstance(chart, GridChart):
        return draw_grid(chart)
    return no_figure(chart.title, "", f"This version of the report cannot draw charts of the kind {chart.kind!r}.")


def lines_chart(chart: LinesChart, identifier: str, wide: bool = False) -> Chart:
    """The chart for drawing; points that a logarithmic axis has no place for are omitted, and counted."""
    lost = 0
    curves = []
    for line, color in zip(chart.lines, line_colors(chart.lines), strict=True):
        log_x, log_y = chart.x.log and line.style != "rule", chart.y.log
        outside = [(log_x and (p.x or 0) <= 0) or (log_y and p.y is not None and p.y <= 0) for p in line.points]
        points = [point for point, lose in zip(line.points, outside, strict=True) if not lose]
        lost += sum(outside)
        if line.style == "rule":  # the first level that is known
            points = [point for point in line.points if point.y is not None][:1] * 2
        if points:
            curves.append(_series(line.name, points, line.style, color))
    unit, x_unit = ("percent" if label.percent else "number" for label in (chart.y, chart.x))
    x, y = (label.text + (" (logarithmic)" if label.log else "") for label in (chart.x, chart.y))
    parts = [f"{y} against {x}"]
    if any(point.low is not None for line in chart.lines for point in line.points):
        parts.append("whiskers and bands: one standard deviation over seeds")
    if lost:
        parts.append(f"{lost} point(s) at or below zero have no place on a logarithmic axis")
    text = "; ".join(parts)
    return Chart(
        identifier, chart.title, text[:1].upper() + text[1:], chart.x.text, curves,
        unit=unit, x_unit=x_unit, log_x=chart.x.log, log_y=chart.y.log, wide=wide,
    )  # fmt: skip


def line_colors(lines: Sequence[FigureLine]) -> list[int]:
    """Series of one method share its colour and differ in dashes; those without a method take what is free."""
    keys = [plain_name(line.method or line.name) for line in lines]
    taken: dict[str, int] = {}
    for key in keys:
        color = METHOD_COLORS.get(key)
        if color is not None and color not in taken.values():
            taken.setdefault(key, color)
    uses: dict[int, int] = {}
    chosen = []
    for line, key in zip(lines, keys, strict=True):
        if key not in taken:
            free = [color for color in range(COLORS - 1) if color not in taken.values()]
            taken[key] = free[0] if free else len(taken) % (COLORS - 1)
        color, again = taken[key], 0
        if line.style in ("line", "band"):  # points and rules are told from lines by their form
            again = uses.get(color, 0)
            uses[color] = again + 1
        chosen.append(color + COLORS * again)
    return chosen


def _series(name: str, points: Sequence[Point], style: str, color: int) -> Series:
    spread = any(point.low is not None and point.high is not None for point in points)
    rule, marks = style == "rule", style == "points" or (style == "line" and len(points) <= MARKED)
    return Series(
        name, () if rule else [point.x or 0.0 for point in points], [point.y for point in points],
        [point.low for point in points] if spread else (), [point.high for point in points] if spread else (),
        color=color, dashed=rule, rule=rule, line=style != "points", marks=marks, whiskers=spread and marks,
        spread=spread, labels=[point.label for point in points] if any(point.label for point in points) else (),
    )  # fmt: skip


def draw_grid(chart: GridChart) -> Html:
    """A table whose cells are coloured by their number: it reads aloud, prints and scrolls like any table."""
    present = [value for row in chart.cells for value in row if value is not None]
    subtitle = f"{chart.value.text} by {chart.y.text} and {chart.x.text}"
    if not present:
        return no_figure(chart.title, subtitle, class_="chart wide")
    low, high = min(present), max(present)

    def cell(value: float | None) -> Html:
        if value is None:
            return tag("td", MISSING, class_="number")
        level = LEVELS if high == low else 1 + min(LEVELS - 1, int(LEVELS * (value - low) / (high - low)))
        return tag("td", number(value), class_=f"number q{level}")

    def number(value: float) -> str:
        return percent(value) if chart.value.percent else tick(value)

    def heading(text: float | str, label: Label, scope: str) -> Html:
        if not isinstance(text, str):
            text = tick(100 * text, f"{NARROW}%") if label.percent else tick(text)
        return tag("th", text, scope=scope)

    corner = tag("th", f"{chart.y.text} \\ {chart.x.text}", scope="col")
    head = tag("tr", corner, *(heading(item, chart.x, "col") for item in chart.columns))
    named = zip(chart.rows, chart.cells, strict=True)
    body = [tag("tr", heading(name, chart.y, "row"), *map(cell, row)) for name, row in named]
    content = scroll_table(chart.title, tag("thead", head), tag("tbody", *body), class_="heat")
    ramp = tag("span", *(tag("span", class_=f"q{level}") for level in range(1, LEVELS + 1)), class_="ramp")
    key = tag("p", tag("span", number(low)), ramp, tag("span", number(high)), class_="key")
    keys = tag("div", key, class_="keys", aria_hidden="true")
    return figure(chart.title, subtitle, content, keys, class_="chart wide grid-chart")
