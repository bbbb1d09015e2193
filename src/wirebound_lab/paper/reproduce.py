"""From names of figures to their experiments: the jobs of each, and its experiment.json."""

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound.checkpoint.atomic import write_file
from wirebound_lab.paper.estimate import say_how_long
from wirebound_lab.paper.fig1a import FIG1A
from wirebound_lab.paper.fig1b import FIG1B
from wirebound_lab.paper.fig2 import FIG2
from wirebound_lab.paper.fig3 import FIG3
from wirebound_lab.paper.fig4 import FIG4
from wirebound_lab.paper.fig5 import FIG5
from wirebound_lab.paper.fig6 import FIG6
from wirebound_lab.paper.figure import Figure, Scale
from wirebound_lab.paper.job import Job, Outcomes, Say, core_seconds, find_finished, run_jobs
from wirebound_lab.paper.theory import THEORY
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.record import RunFolderError

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (FIG1A, FIG1B, FIG2, FIG3, FIG4, FIG5, FIG6, THEORY)}
FORMAT = 1  # of experiment.json
NAME = "experiment.json"
_MOST_RUNS = 6


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
            if scale is not Scale.QUICK:
                done_before = find_finished(jobs, runs)
                left = {job.folder: job for job in jobs if job.folder not in done_before}
                say_how_long(list(left.values()), workers, say)
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
    write_text(out / figure.name / NAME, text)
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
        "hours": round(sum(map(core_seconds, done.summaries.values())) / 3600, 2),
        "counted": len(done.summaries),
    }  # fmt: skip


def keep_experiment(out: Path, kept: Path, figure: Figure) -> None:
    """A copy of a figure's experiment.json beside the runs that are kept."""
    write_text(kept / figure.name / NAME, (out / figure.name / NAME).read_text(encoding="utf-8"))


def _rounded(value: Any) -> Any:
    """Six digits are more than a chart can show."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())
