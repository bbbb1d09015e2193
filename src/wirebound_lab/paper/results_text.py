"""``RESULTS.md``: one table of the paper's claims beside what was found, out of the experiments in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wirebound_lab.paper.figure import Figure

_HOLDS = {True: "yes", False: "**no**", None: "not decided"}
_COLUMNS = ("figure", "the paper's claim", "paper", "ours", "seeds", "holds", "command")


def results_text(experiments: Sequence[Mapping[str, Any]], figures: Mapping[str, Figure]) -> str:
    """The page. Figures that have not been run are in the table as such."""
    by_name = {experiment["name"]: experiment for experiment in experiments}
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*figures, *by_name]):
        if name in by_name:
            rows += _rows(by_name[name])
        else:
            rows.append((name, figures[name].claim, "", "not run", "", "", f"`wirebound reproduce {name}`"))
    findings = [f for experiment in experiments for f in experiment["findings"]]
    counts = [sum(f.get("holds") is holds for f in findings) for holds in (True, False, None)]
    return "\n".join([
        "# What the paper claims, and what was found here",
        "",
        "Made by `wirebound reproduce`; ± is the sample standard deviation over seeds. "
        f"{counts[0]} claims hold, {counts[1]} do not, {counts[2]} are not decided.",
        "",
        _line(_COLUMNS),
        _line(["---"] * len(_COLUMNS)),
        *map(_line, rows),
        *_notes(experiments),
        "",
    ])  # fmt: skip


def _rows(experiment: Mapping[str, Any]) -> list[tuple[str, ...]]:
    name, how = experiment["name"], f"`{experiment['command']}`"
    return [
        (name, f["claim"], f["paper"], f["ours"], str(f["seeds"]), _HOLDS[f["holds"]], how) for f in experiment["findings"]
    ] or [(name, experiment["claim"], "", "run, without a finding", "", _HOLDS[None], how)]


def _notes(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for experiment in experiments:
        lines.append(f"- **{experiment['name']}**, {experiment['scale']}: {experiment['scale_note']}")
        lines += [f"    - {f['claim']}: {f['note']}" for f in experiment["findings"] if f.get("note")]
        lines += [f"    - diverged: `{run}`: {why}" for run, why in experiment.get("diverged", {}).items()]
    return ["", "## Notes", "", *lines] if lines else []


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
