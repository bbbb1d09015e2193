"""One reproduced figure on the page: the claim, the figure, what came of it, the tables, the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .experiment_charts import draw_charts
from .experiments import Experiment, Finding, ResultTable
from .markup import Child, Html, fragment, scroll_table, tag, tag_if
from .tables import settings, table
from .wording import MISSING, joined, plural, unbroken

_NUMBER = re.compile(r"[<>≤≥~≈+\u2212-]?\s*[\d.,]+\s*(?:e[+-]?\d+)?\s*(?:%|±.*|[a-zµ]{1,3})?")

# Whether a claim holds: its sign, the words for one claim and for several, and the class.
VERDICTS: Mapping[bool | None, tuple[str, str, str, str]] = {
    True: ("✓", "holds", "hold", "badge good"),
    False: ("✗", "does not hold", "do not hold", "badge bad"),
    None: ("?", "not decided", "not decided", "badge"),
}


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
    claim = tag("p", "The paper says", class_="label"), tag_if("p", experiment.claim)
    code = tag("code", experiment.command)
    return tag(
        "section",
        tag("p", joined(experiment.paper, experiment.name), class_="kicker"),
        tag("h2", experiment.title, id=f"{identifier}-title"),
        tag("div", *claim, class_="claim") if experiment.claim else None,
        tag_if("p", joined(scale, experiment.scale_note, seeds), class_="hint scale"),
        draw_charts(experiment, identifier),
        _findings(experiment.findings),
        *(_table(item) for item in experiment.tables),
        _runs(experiment, run_links),
        tag("section", tag("h3", "Made with"), tag("pre", code, tabindex=0, role="region", aria_label="Command"))
        if experiment.command
        else None,
        _settings(experiment),
        id=identifier,
        class_="panel experiment",
        aria_labelledby=f"{identifier}-title",
    )


def verdict_badges(findings: Sequence[Finding]) -> Html | None:
    """How many claims hold, at a glance: a sign, a number and a colour each."""
    parts = []
    for holds, (sign, one, several, class_) in VERDICTS.items():
        number = sum(finding.holds is holds for finding in findings)
        if number:
            parts.append(tag("span", f"{sign} {number} {one if number == 1 else several}", class_=class_))
    return tag("span", *parts, class_="badges") if findings else None


def _findings(findings: Sequence[Finding]) -> Html | None:
    """A table; on a phone each line of it becomes a block, so the roles are said: browsers forget them then."""
    if not findings:
        return None
    head = {"Claim": None, "Holds": None, "Paper": None, "Here": None, "Seeds": "number"}
    rows = []
    for finding in findings:
        sign, word, _, class_ = VERDICTS[finding.holds]
        remark = tag("span", unbroken(finding.note), class_="remark") if finding.note else None
        claim = tag("th", fragment(unbroken(finding.claim), remark), scope="row", role="rowheader")
        cells: list[Child] = [
            tag("span", f"{sign} {word}", class_=class_),
            unbroken(finding.paper or MISSING),
            unbroken(finding.ours or MISSING),
            MISSING if finding.seeds is None else finding.seeds,
        ]
        rest = [
            tag("td", cell, role="cell", data_label=name, class_=head[name])
            for name, cell in zip(list(head)[1:], cells, strict=True)
        ]
        rows.append(tag("tr", claim, *rest, role="row"))
    heads = [tag("th", name, scope="col", role="columnheader", class_=class_) for name, class_ in head.items()]
    thead = tag("thead", tag("tr", *heads, role="row"), role="rowgroup")
    title = "Claims of the paper and what came out here"
    content = scroll_table(title, thead, tag("tbody", *rows, role="rowgroup"), role="table")
    return tag("section", tag("h3", "What came of it"), content, class_="findings")


def _table(item: ResultTable) -> Html:
    """Columns of numbers are set to the right, whatever stands in the file."""
    columns = range(len(item.columns))
    texts = {index for index in columns if index == 0 or not all(_is_number(row[index]) for row in item.rows)}
    rows = [[unbroken(cell) for cell in row] for row in item.rows]
    content = table(item.title, [unbroken(name) for name in item.columns], rows, texts=texts) if item.columns else None
    return tag("section", tag("h3", item.title), content, tag_if("p", item.note, class_="hint under"), class_="result")


def _is_number(cell: str) -> bool:
    return not cell or cell in ("-", MISSING) or _NUMBER.fullmatch(cell.strip()) is not None


def _runs(experiment: Experiment, run_links: Mapping[Path, str]) -> Html | None:
    """Links to the runs on this page; those whose folders were not kept are counted."""
    if not experiment.runs:
        return None
    links = [
        tag("li", tag("a", run, href=f"#{run_links[folder.resolve()]}"))
        for run, folder in zip(experiment.runs, experiment.run_folders, strict=True)
        if folder.resolve() in run_links
    ]
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
