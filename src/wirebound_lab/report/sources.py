"""What a page is made of: experiments and runs, found in the folders that a command names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .experiment import Experiment
from .experiment_file import find_experiments, read_experiment
from .runs import FILES, find_runs


@dataclass(frozen=True)
class Sources:
    """Experiments that have been read, and run folders that are to be."""

    experiments: list[Experiment]
    runs: list[Path]


def find_sources(folders: Iterable[Path]) -> Sources:
    """In each folder its experiments and the runs that they name; without experiments, all its runs.

    A figure may stand on a hundred runs: the page shows those that its experiment finds worth a look, if their
    folders were kept.
    """
    experiments: dict[Path, Experiment] = {}
    runs: dict[Path, Path] = {}
    for folder in map(Path, folders):
        found = [read_experiment(path) for path in find_experiments(folder)] if folder.is_dir() else []
        experiments.update((experiment.path.resolve(), experiment) for experiment in found)
        named = [run for experiment in found for run in experiment.run_folders if _is_run(run)]
        for run in named if found else find_runs([folder]):
            runs.setdefault(run.resolve(), run)
    return Sources(list(experiments.values()), list(runs.values()))


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)
