"""The page: everything in one HTML file that opens from disk, and is either whole or not there."""

import errno
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from .charts import Chart, Series, draw
from .experiment_section import anchors, experiment_section, verdict_badges
from .experiments import Experiment
from .markup import Child, Html, fragment, scroll_table, tag
from .run_charts import PAPER_COLOR, accuracy_series
from .run_section import budget_badge, run_section
from .runs import ReportError, Run, read_run
from .wording import MISSING, count, duration, joined, percent, plural, share, shown_name

# What says that a page can never be written there, unlike a full disk.
_WRONG_PLACE = (
    errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
OPEN_RUNS = 3  # more runs than that start folded
# A column of the table: its name, its words, and for a column of numbers the number to sort by.
Column = tuple[str, Callable[[Run], Child], Callable[[Run], float | None] | None]


def write_report(folders: Sequence[Path], out: Path, experiments: Sequence[Experiment] = ()) -> Path:
    """Write one self-contained HTML page about these experiments and run folders to `out`, atomically."""
    check_place(out)
    return write_page(render([read_run(folder) for folder in dict.fromkeys(map(Path, folders))], experiments), out)


def check_place(out: Path) -> None:
    if os.path.isdir(out):  # unlike Path.is_dir, no error for a name that is too long
        raise ReportError(f"out (={out}) must be a file to write, not a folder")


def write_page(text: str, out: Path) -> Path:
    """Write a page to `out`, atomically."""
    out = Path(out)
    check_place(out)
    # In the same folder, so that the last step is a rename and a reader never meets half a page.
    unfinished = out.with_name(f".{out.name[:40]}.{os.getpid()}.unfinished")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            # JSON can hold half a letter (a lone surrogate), which no page can: it becomes a question mark.
            with open(unfinished, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, out)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _WRONG_PLACE:
            raise
        raise ReportError(f"out (={out}) cannot be written: {error.strerror or error}") from error
    return out


def render(runs: Sequence[Run], experiments: Sequence[Experiment] = ()) -> str:
    """The whole page as text; the same folders give the same bytes."""
    if not runs and not experiments:
        raise ReportError("folders (=[]) must name at least one run folder or experiment")
    identifiers = [f"run-{index}" for index in range(1, len(runs) + 1)]
    is_open = len(runs) <= (0 if experiments else OPEN_RUNS)
    sections = [run_section(run, name, is_open) for run, name in zip(runs, identifiers, strict=True)]
    if experiments:
        heading, names = "Reproduction report", anchors(experiments)
        title = experiments[0].title if len(experiments) == 1 else f"{len(experiments)} experiments"
        links = {run.folder: identifier for run, identifier in zip(runs, identifiers, strict=True)}
        content = fragment(
            _contents(experiments, names, runs, identifiers) if len(experiments) + len(runs) > 1 else None,
            *(experiment_section(item, name, links) for item, name in zip(experiments, names, strict=True)),
            tag("h2", "Runs worth a look", id="runs", class_="part") if runs else None,
            *sections,
        )
    else:
        heading = "Run report"
        content = fragment(_comparison(runs, identifiers) if len(runs) > 1 else None, *sections)
        title = f"{len(runs)} runs" if len(runs) > 1 else runs[0].heading
    packaged = [files(__package__).joinpath(name) for name in ("page.html", "style.css", "script.js")]
    page, style, script = (file.read_text(encoding="utf-8") for file in packaged)
    texts = {"title": fragment(title), "heading": heading, "content": content, "style": style, "script": script}
    return Template(page).substitute(texts)


def _contents(
    experiments: Sequence[Experiment], names: Sequence[str], runs: Sequence[Run], identifiers: Sequence[str]
) -> Html:
    rows = []
    for item, name in zip(experiments, names, strict=True):
        where = tag("span", item.paper or item.name, class_="where")
        rows.append(tag("li", where, tag("a", item.title, href=f"#{name}"), verdict_badges(item.findings)))
    named = zip(runs, identifiers, strict=True)
    shown = [tag("li", tag("a", run.heading, href=f"#{identifier}"), f" ({run.name})") for run, identifier in named]
    verdicts = [finding.holds for item in experiments for finding in item.findings]
    held, failed, open_ = (sum(holds is verdict for holds in verdicts) for verdict in (True, False, None))
    total = f"{held} of {plural(len(verdicts), 'claim')} hold here, {failed} do not, {open_} not decided."
    return tag(
        "nav",
        tag("h2", "Contents"),
        tag("p", total, class_="hint") if verdicts else None,
        tag("ol", *rows, class_="contents"),
        fragment(tag("h3", "Runs"), tag("ul", *shown, class_="links")) if shown else None,
        class_="panel", aria_label="Contents",
    )  # fmt: skip


def _comparison(runs: Sequence[Run], identifiers: Sequence[str]) -> Html:
    curves = list(map(accuracy_series, runs, _labels(runs), range(len(runs))))
    parts = {run.part for run in runs}
    title = f"{parts.pop().capitalize()} accuracy" if len(parts) == 1 else "Accuracy"
    varies = len({run.connectivity for run in runs if run.connectivity and run.accuracy is not None}) > 1
    drawn, words = [curve for curve in curves if curve], "After each epoch, all runs"
    overlay = Chart("compare-accuracy", title, words, "epoch", drawn, unit="percent", wide=not varies)
    charts = tag("div", draw(overlay), draw(_trade_off(runs)) if varies else None, class_="charts")
    heading = tag("h2", f"{len(runs)} runs compared")
    return tag("section", heading, _table(runs, identifiers), charts, class_="panel compare")


def _labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: what differs between them, and the folder where that is not enough."""
    aspects = [
        (r.title, shown_name(r.data), share(r.connectivity), f"seed {r.seed}", f"{r.part} set") for r in runs
    ]
    varying = [len(set(values)) > 1 for values in zip(*aspects, strict=True)]
    names = [joined(*(value for value, varies in zip(row, varying, strict=True) if varies)) for row in aspects]
    pairs = zip(names, _folder_names(runs), strict=True)
    return [name if name and names.count(name) == 1 else joined(name, folder) for name, folder in pairs]


def _columns(runs: Sequence[Run]) -> list[Column]:
    best = max((run.accuracy for run in runs if run.accuracy is not None), default=None)

    def accuracy(run: Run) -> Child:
        text = percent(run.accuracy)
        return tag("strong", text) if run.accuracy is not None and run.accuracy == best else text

    def active(run: Run) -> str:
        low, high = run.active_range or (run.budget, run.budget)
        return count(low) if low == high else f"{count(low)}–{count(high)}"

    def paper(run: Run) -> float | None:
        return run.paper.accuracy if run.paper else None

    # The first columns are those that a phone shows without scrolling.
    columns: dict[Column, bool] = {
        ("Accuracy", accuracy, lambda run: run.accuracy): True,
        ("Connectivity", lambda run: share(run.connectivity), lambda run: run.connectivity): True,
        ("Method", lambda run: run.title, None): True,
        ("Data", lambda run: shown_name(run.data), None): len({run.data for run in runs}) > 1,
        ("Seed", lambda run: run.seed or MISSING, None): len({run.seed for run in runs}) > 1,
        ("Budget", lambda run: budget_badge(run, ""), None): True,
        ("Active", active, lambda run: run.active_range[1] if run.active_range else run.budget): True,
        ("Paper", lambda run: percent(paper(run), 1), paper): any(map(paper, runs)),
        ("Epochs", lambda run: count(run.epochs), lambda run: run.epochs): True,
        ("Time", lambda run: duration(run.seconds), lambda run: run.seconds): True,
    }
    return [column for column, shown in columns.items() if shown]


def _table(runs: Sequence[Run], identifiers: Sequence[str]) -> Html:
    columns = _columns(runs)
    classes = {"Run": None, **{name: "number" if value else None for name, _, value in columns}}
    head = [tag("th", name, scope="col", class_=class_, data_sortable=True) for name, class_ in classes.items()]
    rows = []
    for run, folder, identifier in zip(runs, _folder_names(runs), identifiers, strict=True):
        cells = [
            tag("td", text(run), class_=classes[name], data_value=value(run) if value else None)
            for name, text, value in columns
        ]
        rows.append(tag("tr", tag("th", tag("a", folder, href=f"#{identifier}"), scope="row"), *cells))
    thead = tag("thead", tag("tr", *head))
    return scroll_table("Runs compared", thead, tag("tbody", *rows), frame="scroll sticky", class_="sortable")


def _trade_off(runs: Sequence[Run]) -> Chart:
    """One curve a method: the mean over seeds, with a band from the worst to the best."""
    groups: dict[str, dict[float, list[float]]] = {}
    papers: set[tuple[float, float]] = set()
    several = len({run.data for run in runs}) > 1
    for run in runs:
        if run.connectivity and run.connectivity > 0 and run.accuracy is not None:
            name = joined(run.title, shown_name(run.data) if several else None)
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
        xs, accuracies = map(list, zip(*sorted(papers), strict=True))
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
