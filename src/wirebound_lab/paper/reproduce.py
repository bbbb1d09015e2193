"""From names of figures to their experiments: the jobs of each, its experiment.json, and RESULTS.md over all."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.paper.experiment import assemble, read_experiments, write_experiment, write_text
from wirebound_lab.paper.figure import Figure, Outcomes, Scale
from wirebound_lab.paper.job import Job
from wirebound_lab.paper.runner import Say, find_finished, run_jobs
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.tables import markdown_table

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
    if seeds is not None and seeds < 1:
        raise ConfigError(f"seeds (={seeds}) must be >= 1")
    if jobs < 1:
        raise ConfigError(f"jobs (={jobs}) must be >= 1")


def check_something_there(figures: Sequence[Figure], scale: Scale, seeds: int | None, out: Path) -> None:
    """For --resume: some run of these figures must have been begun."""
    for figure in figures:
        for job in figure.jobs(scale, seeds or default_seeds(figure, scale)):
            if job.begun(out / "runs" / job.folder):
                return
    names = " ".join(figure.name for figure in figures)
    raise RunFolderError(f"{out} holds no run of {names} at this scale to resume; omit --resume to begin")


def default_seeds(figure: Figure, scale: Scale) -> int:
    return 1 if scale is Scale.QUICK else figure.seeds


def reproduce(
    figure: Figure, scale: Scale, seeds: int | None, out: Path, workers: int, say: Say, *, finished: bool = False
) -> dict[str, Any]:
    """Run what is left of a figure and write its experiment; returns it. ``finished``: begin no run."""
    count = seeds or default_seeds(figure, scale)
    runs = out / "runs"

    def outcomes(jobs: Sequence[Job]) -> Outcomes:
        if not finished:
            return run_jobs(jobs, runs, workers, say)
        found = find_finished(jobs, runs)
        missing = {job.folder for job in jobs} - set(found)
        say(f"{len(found)} runs are finished, {len(missing)} are missing")
        return Outcomes(runs, found, {}, tuple(sorted(missing)))

    done = outcomes(figure.jobs(scale, count))
    later = figure.later(scale, count, done)
    if later:
        more = outcomes(later)
        summaries, lost = {**done.summaries, **more.summaries}, {**done.lost, **more.lost}
        done = Outcomes(runs, summaries, lost, (*done.missing, *more.missing))
    experiment = assemble(figure, scale, count, done)
    write_experiment(experiment, out / figure.name)
    return experiment


def results_text(experiments: Sequence[Mapping[str, Any]], figures: Mapping[str, Figure]) -> str:
    """The page. Figures that have not been run are in the table as such."""
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
    return (
        "# What the paper claims, and what was found here\n\n"
        "Made by `wirebound reproduce`; ± is the sample standard deviation over seeds. "
        f"{counts[0]} claims hold, {counts[1]} do not, {counts[2]} are not decided.\n\n"
        + markdown_table(_COLUMNS, rows)
        + ("\n\n## Notes\n\n" + "\n".join(notes) if notes else "")
        + "\n"
    )


def write_results(out: Path, figures: Mapping[str, Figure]) -> Path:
    """RESULTS.md over all experiments in ``out``, whenever they were run."""
    path = out / "RESULTS.md"
    write_text(path, results_text(read_experiments(out), figures))
    return path
