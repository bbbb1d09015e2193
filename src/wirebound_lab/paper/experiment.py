"""``experiment.json``: what a reproduced figure leaves behind, and what ``wirebound report`` shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wirebound.checkpoint.atomic import write_file
from wirebound_lab.paper.figure import Figure, Outcomes, Scale

FORMAT = 1
NAME = "experiment.json"
_MOST_RUNS = 6


def assemble(figure: Figure, scale: Scale, seeds: int, done: Outcomes) -> dict[str, Any]:
    """The whole experiment, from the runs that were done for it."""
    drawn = figure.plot(scale, seeds, done)
    tables = list(drawn.tables)
    if done.lost:
        lost = {"title": "Runs that diverged", "columns": ["run", "why"], "rows": [list(item) for item in done.lost.items()]}
        tables.append({**lost, "note": "They are in no mean and no chart."})
    missing = f" ({len(done.missing)} of its runs are still missing)" if done.missing else ""
    shown = list(dict.fromkeys(job.folder for job in done.ended(drawn.runs)))
    return {
        "format": FORMAT,
        "name": figure.name,
        "title": figure.title,
        "paper": figure.paper,
        "claim": figure.claim,
        "scale": scale.value,
        "scale_note": figure.notes[scale] + missing,
        "seeds": seeds,
        "command": command(figure.name, scale, seeds),
        "settings": drawn.settings,
        "charts": _rounded(drawn.charts),
        "tables": tables,
        "findings": drawn.findings,
        "runs": [f"runs/{folder}" for folder in shown[:_MOST_RUNS]],
        "diverged": dict(done.lost),
        "missing": list(done.missing),
    }


def command(name: str, scale: Scale, seeds: int) -> str:
    flag = "" if scale is Scale.FITTED else f" --{scale.value}"
    return f"wirebound reproduce {name}{flag} --seeds {seeds}"


def _rounded(value: Any) -> Any:
    """Six digits are more than a chart can show."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def write_text(path: Path, text: str) -> None:
    """The file has the whole text, or what it had before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


def write_experiment(experiment: dict[str, Any], folder: Path) -> Path:
    path = folder / NAME
    write_text(path, json.dumps(experiment, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


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
