"""RESULTS.md: the replication report over all experiments of a folder.

Its numbers come from the experiments; what was easy, hard and different is ``replication.md`` beside this file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.paper.figure import Figure
from wirebound_lab.paper.reproduce import FORMAT, NAME, write_text
from wirebound_lab.tables import markdown_table

_VERDICTS = {True: "holds", False: "**does not hold**", None: "not decided"}
_COLUMNS = ("figure", "the paper's claim", "paper", "ours", "seeds", "test", "verdict", "command")
_WORDS = Path(__file__).with_name("replication.md")


def read_experiments(out: Path) -> list[dict[str, Any]]:
    """All experiments below a folder, by the order of their names."""
    found = []
    for path in sorted(out.glob(f"*/{NAME}")):
        try:
            experiment = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(experiment, dict) or experiment.get("format") != FORMAT or "name" not in experiment:
                raise ValueError(f"it must hold one experiment of format {FORMAT}")
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read: {error}; delete it to make it again") from error
        found.append(experiment)
    return found


def write_results(out: Path, figures: Mapping[str, Figure]) -> Path:
    """RESULTS.md over all experiments in ``out``, whenever they were run; figures that were not run are in it as such."""
    experiments = read_experiments(out)
    found = [finding.get("holds") for experiment in experiments for finding in experiment["findings"]]
    held, failed, undecided = (sum(holds is verdict for holds in found) for verdict in (True, False, None))
    scope, after = _WORDS.read_text(encoding="utf-8").split("<!-- table -->\n")
    head = (
        "# Deep rewiring, replicated\n\n"
        f"Made by `wirebound reproduce`: {held} claims hold, {failed} do not, {undecided} are not decided. Where the "
        "table gives a difference in points, ± is its 90 % interval over seeds (95 % where the test says so); elsewhere ± is the standard deviation.\n\n"
    )
    parts = [head, scope, _compute(experiments), "\n\n## Claims\n\n", _table(experiments, figures), "\n\n", after, _notes(experiments)]
    path = out / "RESULTS.md"
    write_text(path, "".join(parts))
    return path


def _compute(experiments: Sequence[Mapping[str, Any]]) -> str:
    known = [e for e in experiments if e.get("hours")]
    rows = [[e["name"], e["counted"], f"{e['hours']:.1f}", e["scale"]] for e in known]
    words = "Figures share runs, and runs of pruning share their first epochs: their hours are counted for each that has them.\n\n"
    return words + markdown_table(("figure", "runs", "hours of one core", "scale"), rows, (1, 2)) if rows else ""


def _table(experiments: Sequence[Mapping[str, Any]], figures: Mapping[str, Figure]) -> str:
    by_name = {experiment["name"]: experiment for experiment in experiments}
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*figures, *by_name]):
        if name not in by_name:
            rows.append((name, figures[name].claim, "", "not run", "", "", "", f"`wirebound reproduce {name}`"))
            continue
        experiment, how = by_name[name], f"`{by_name[name]['command']}`"
        for f in experiment["findings"]:
            rows.append((name, f["claim"], f["paper"], f["ours"], str(f["seeds"]), f.get("test", ""), verdict(f), how))
        if not experiment["findings"]:
            rows.append((name, experiment["claim"], "", "run, without a finding", "", "", _VERDICTS[None], how))
    return markdown_table(_COLUMNS, rows)


def verdict(finding: Mapping[str, Any]) -> str:
    if finding.get("see") and finding["holds"] is False:
        return f"the paper's statement does not hold, see [{Path(finding['see']).stem}]({finding['see']})"
    return _VERDICTS[finding["holds"]]


def _notes(experiments: Sequence[Mapping[str, Any]]) -> str:
    notes = []
    for experiment in experiments:
        notes.append(f"- **{experiment['name']}**, {experiment['scale']}: {experiment['scale_note']}")
        notes += [f"    - {f['claim']}: {f['note']}" for f in experiment["findings"] if f.get("note")]
        notes += [f"    - diverged: `{run}`: {why}" for run, why in experiment.get("diverged", {}).items()]
    return "\n## Notes\n\n" + "\n".join(notes) + "\n" if notes else ""
