"""From names of figures to their experiments: the jobs of each, its experiment.json, and RESULTS.md over all."""

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound.checkpoint.atomic import write_file
from wirebound_lab.paper.fig1a import FIG1A
from wirebound_lab.paper.fig1b import FIG1B
from wirebound_lab.paper.fig2 import FIG2
from wirebound_lab.paper.fig3 import FIG3
from wirebound_lab.paper.fig4 import FIG4
from wirebound_lab.paper.fig5 import FIG5
from wirebound_lab.paper.fig6 import FIG6
from wirebound_lab.paper.figure import Figure, Scale
from wirebound_lab.paper.job import Job, Outcomes, Say, find_finished, run_jobs
from wirebound_lab.paper.theory import THEORY
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.tables import markdown_table

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (FIG1A, FIG1B, FIG2, FIG3, FIG4, FIG5, FIG6, THEORY)}
FORMAT = 1  # of experiment.json
NAME = "experiment.json"
_MOST_RUNS = 6
_HOLDS = {True: "yes", False: "**no**", None: "not decided"}
_COLUMNS = ("figure", "the paper's claim", "paper", "ours", "seeds", "holds", "command")


def find_figures(names: Sequence[str], figures: Mapping[str, Figure]) -> list[Figure]:
    """The figures of these names, each once; an unknown name is an error that names the nearest."""
    for name in names:
        if name not in figures:
            near = difflib.get_close_matches(name.lower(), figures, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(figures)}"
            raise ConfigError(f"figure (={name!r}) is unknown; {hint}")
    return [figures[name] for name in dict.fromkeys(names)]


def check_numbers(seeds: int | None, jobs: int) -> None:
    for name, number in (("seeds", seeds), ("jobs", jobs)):
        if number is not None and number < 1:
            raise ConfigError(f"{name} (={number}) must be >= 1")


def check_begun(figures: Sequence[Figure], scale: Scale, seeds: int | None, out: Path) -> None:
    """For --resume: some run of these figures must have been begun."""
    jobs = (job for figure in figures for job in figure.jobs(scale, seeds or _default_seeds(figure, scale)))
    if not any((out / "runs" / f"{job.folder}{end}").exists() for job in jobs for end in ("", ".partial")):
        names = " ".join(figure.name for figure in figures)
        raise RunFolderError(f"{out} holds no run of {names} at this scale to resume; omit --resume to begin")


def _default_seeds(figure: Figure, scale: Scale) -> int:
    return 1 if scale is Scale.QUICK else figure.seeds


def reproduce(
    figure: Figure, scale: Scale, seeds: int | None, out: Path, workers: int, say: Say, *, finished: bool = False
) -> dict[str, Any]:
    """Run what is left of a figure and write its experiment; returns it. ``finished``: begin no run."""
    count = seeds or _default_seeds(figure, scale)
    runs = out / "runs"

    def outcomes(jobs: Sequence[Job]) -> Outcomes:
        if not finished:
            return run_jobs(jobs, runs, workers, say)
        found = find_finished(jobs, runs)
        missing = {job.folder for job in jobs} - set(found)
        say(f"{len(found)} runs are finished, {len(missing)} are missing")
        return Outcomes(runs, found, {}, tuple(sorted(missing)))

    done = outcomes(figure.jobs(scale, count))
    if later := figure.later(scale, count, done):
        more = outcomes(later)
        summaries, lost = {**done.summaries, **more.summaries}, {**done.lost, **more.lost}
        done = Outcomes(runs, summaries, lost, (*done.missing, *more.missing))
    experiment = assemble(figure, scale, count, done)
    text = json.dumps(experiment, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    _write_text(out / figure.name / NAME, text)
    return experiment


def assemble(figure: Figure, scale: Scale, seeds: int, done: Outcomes) -> dict[str, Any]:
    """``experiment.json``: what a reproduced figure leaves behind, and what ``wirebound report`` shows of it."""
    drawn = figure.plot(scale, seeds, done)
    tables = list(drawn.tables)
    if done.lost:
        lost = {"title": "Runs that diverged", "columns": ["run", "why"], "rows": [list(item) for item in done.lost.items()]}
        tables.append({**lost, "note": "They are in no mean and no chart."})
    missing = f" ({len(done.missing)} of its runs are still missing)" if done.missing else ""
    shown = list(dict.fromkeys(job.folder for job in done.ended(drawn.runs)))
    flag = "" if scale is Scale.FITTED else f" --{scale.value}"
    return {
        "format": FORMAT,
        **{key: getattr(figure, key) for key in ("name", "title", "paper", "claim")},
        "scale": scale.value, "scale_note": figure.notes[scale] + missing, "seeds": seeds,
        "command": f"wirebound reproduce {figure.name}{flag} --seeds {seeds}",
        "settings": drawn.settings, "charts": _rounded(drawn.charts), "tables": tables, "findings": drawn.findings,
        "runs": [f"runs/{folder}" for folder in shown[:_MOST_RUNS]],
        "diverged": dict(done.lost), "missing": list(done.missing),
    }  # fmt: skip


def _rounded(value: Any) -> Any:
    """Six digits are more than a chart can show."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())


def _read_experiments(out: Path) -> list[dict[str, Any]]:
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
    experiments = _read_experiments(out)
    by_name = {experiment["name"]: experiment for experiment in experiments}
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*figures, *by_name]):
        if name not in by_name:
            rows.append((name, figures[name].claim, "", "not run", "", "", f"`wirebound reproduce {name}`"))
            continue
        experiment, how = by_name[name], f"`{by_name[name]['command']}`"
        for f in experiment["findings"]:
            rows.append((name, f["claim"], f["paper"], f["ours"], str(f["seeds"]), _HOLDS[f["holds"]], how))
        if not experiment["findings"]:
            rows.append((name, experiment["claim"], "", "run, without a finding", "", _HOLDS[None], how))
    findings = [f for experiment in experiments for f in experiment["findings"]]
    counts = [sum(f.get("holds") is holds for f in findings) for holds in (True, False, None)]
    notes = []
    for experiment in experiments:
        notes.append(f"- **{experiment['name']}**, {experiment['scale']}: {experiment['scale_note']}")
        notes += [f"    - {f['claim']}: {f['note']}" for f in experiment["findings"] if f.get("note")]
        notes += [f"    - diverged: `{run}`: {why}" for run, why in experiment.get("diverged", {}).items()]
    head = (
        "# What the paper claims, and what was found here\n\n"
        "Made by `wirebound reproduce`; ± is the sample standard deviation over seeds. "
        f"{counts[0]} claims hold, {counts[1]} do not, {counts[2]} are not decided.\n\n"
    )
    below = "\n\n## Notes\n\n" + "\n".join(notes) if notes else ""
    path = out / "RESULTS.md"
    _write_text(path, head + markdown_table(_COLUMNS, rows) + below + "\n")
    return path
