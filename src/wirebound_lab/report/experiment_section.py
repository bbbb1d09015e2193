"""One reproduced figure on the page: the claim, the figure, what came of it, the tables, the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .experiment import Experiment, Finding, Table
from .experiment_charts import draw_charts
from .markup import Child, Html, fragment, tag
from .tables import settings, table
from .wording import MISSING, plural, unbroken

_NUMBER = re.compile(r"[<>≤≥~≈+\u2212-]?\s*[\d.,]+\s*(?:e[+-]?\d+)?\s*(?:%|±.*|[a-zµ]{1,3})?")

VERDICTS: Mapping[bool | None, tuple[str, str]] = {
    True: ("✓ holds", "badge good"),
    False: ("✗ does not hold", "badge bad"),
    None: ("? not decided", "badge"),
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
    return tag(
        "section",
        tag("p", _kicker(experiment), class_="kicker"),
        tag("h2", experiment.title, id=f"{identifier}-title"),
        _claim(experiment),
        tag("p", _scale(experiment), class_="hint scale") if _scale(experiment) else None,
        draw_charts(experiment, identifier),
        _findings(experiment.findings),
        *(_table(item) for item in experiment.tables),
        _runs(experiment, run_links),
        _command(experiment),
        _settings(experiment),
        id=identifier,
        class_="panel experiment",
        aria_labelledby=f"{identifier}-title",
    )


def verdict_badges(findings: Sequence[Finding]) -> Html | None:
    """How many claims hold, at a glance: a sign, a number and a colour each."""
    if not findings:
        return None
    words = {True: "hold", False: "do not hold", None: "not decided"}
    parts = []
    for holds in (True, False, None):
        number = sum(finding.holds is holds for finding in findings)
        if number:
            word = "holds" if holds and number == 1 else "does not hold" if holds is False and number == 1 else words[holds]
            parts.append(tag("span", f"{VERDICTS[holds][0][0]} {number} {word}", class_=VERDICTS[holds][1]))
    return tag("span", *parts, class_="badges")


def _kicker(experiment: Experiment) -> str:
    return " · ".join(part for part in (experiment.paper, experiment.name) if part)


def _claim(experiment: Experiment) -> Html | None:
    if not experiment.claim:
        return None
    return tag("div", tag("p", "The paper says", class_="label"), tag("p", experiment.claim), class_="claim")


def _scale(experiment: Experiment) -> str:
    parts = [
        f"Scale: {experiment.scale}" if experiment.scale else None,
        experiment.scale_note,
        plural(experiment.seeds, "seed") if experiment.seeds is not None else None,
    ]
    return " · ".join(part for part in parts if part)


def _findings(findings: Sequence[Finding]) -> Html | None:
    """A table; on a phone each line of it becomes a block, so the roles are said: browsers forget them then."""
    if not findings:
        return None
    head = ("Claim", "Holds", "Paper", "Here", "Seeds")
    rows = []
    for finding in findings:
        word, class_ = VERDICTS[finding.holds]
        claim = fragment(
            unbroken(finding.claim), tag("span", unbroken(finding.note), class_="remark") if finding.note else None
        )
        cells: list[Child] = [
            tag("span", word, class_=class_),
            unbroken(finding.paper or MISSING),
            unbroken(finding.ours or MISSING),
            MISSING if finding.seeds is None else finding.seeds,
        ]
        rest = [
            tag("td", cell, role="cell", data_label=name, class_="number" if name == "Seeds" else None)
            for name, cell in zip(head[1:], cells, strict=True)
        ]
        rows.append(tag("tr", tag("th", claim, scope="row", role="rowheader"), *rest, role="row"))
    heads = [
        tag("th", name, scope="col", role="columnheader", class_="number" if name == "Seeds" else None) for name in head
    ]
    title = "Claims of the paper and what came out here"
    body = tag(
        "table",
        tag("caption", title, class_="hidden"),
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *rows, role="rowgroup"),
        role="table",
    )
    scroll = tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=title)
    return tag("section", tag("h3", "What came of it"), scroll, class_="findings")


def _table(item: Table) -> Html:
    """Columns of numbers are set to the right, whatever stands in the file."""
    texts = {
        index
        for index in range(len(item.columns))
        if index == 0 or not all(_is_number(row[index]) for row in item.rows)
    }
    rows = [[unbroken(cell) for cell in row] for row in item.rows]
    content = table(item.title, [unbroken(name) for name in item.columns], rows, texts=texts) if item.columns else None
    note = tag("p", item.note, class_="hint under") if item.note else None
    return tag("section", tag("h3", item.title), content, note, class_="result")


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
    return tag(
        "section",
        tag("h3", "Runs"),
        tag("ul", *links, class_="links") if links else None,
        tag("p", note, class_="hint under") if note else None,
    )


def _command(experiment: Experiment) -> Html | None:
    if not experiment.command:
        return None
    code = tag("pre", tag("code", experiment.command), tabindex=0, role="region", aria_label="Command")
    return tag("section", tag("h3", "Made with"), code)


def _settings(experiment: Experiment) -> Html | None:
    """Plain settings together, each nested object as a group of its own."""
    if not experiment.settings:
        return None
    groups = {key: value for key, value in experiment.settings.items() if isinstance(value, dict)}
    plain = {key: value for key, value in experiment.settings.items() if key not in groups}
    body = [settings("General" if groups else "", plain), *(settings(key, value) for key, value in groups.items())]
    return tag("details", tag("summary", "Settings"), *body, class_="more")
