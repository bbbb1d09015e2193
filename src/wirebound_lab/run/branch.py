"""Runs that are alike up to some epoch: trained once up to there, and from there each by itself, as if it had been alone."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from wirebound.checkpoint import load, save
from wirebound_lab.run.config import RunConfig, tasks
from wirebound_lab.run.loop import train
from wirebound_lab.run.record import METRICS, FolderInUse, RunFolder


@dataclass(frozen=True)
class Trunk:
    """The epochs that several runs share."""

    name: str  # of its folder, beside theirs
    config: RunConfig  # of one of them
    epochs: int


def branch_off(trunk: Trunk, config: RunConfig, out: Path) -> None:
    """Give the run in ``out`` the checkpoint and the records of its trunk, which is trained if it is not there yet. Nothing
    is done for a run that has been begun, nor while another process trains the trunk: the run then begins by itself."""
    folder, place = RunFolder(out, resume=True), out.with_name(trunk.name)
    if folder.finished or folder.checkpoint.exists():
        return
    try:
        train(trunk.config, place, resume=True, until=trunk.epochs)
    except FolderInUse:
        return
    grown = RunFolder(place, resume=True)
    method = tasks()[config.task](config).method
    extra = load(grown.checkpoint, method=method).extra  # just written by ``train``, which knows that it is the trunk's
    with folder:
        shutil.copyfile(grown.partial / METRICS, folder.partial / METRICS)
        folder.write_json("config.json", config.as_dict())
        save(folder.checkpoint, method=method, extra={**extra, "config": config.identity()}, random_state=False)
