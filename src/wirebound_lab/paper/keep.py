"""What is kept of finished runs: settings, summary and the curves, without models, so that a campaign of days can go on
elsewhere and its figures can be drawn again from a repository."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from wirebound.checkpoint.atomic import write_file
from wirebound_lab.run.record import SUMMARY

_WHOLE = ("config.json", SUMMARY)
_METRICS = "metrics.jsonl"


def keep_runs(runs: Path, kept: Path) -> int:
    """Copies what is kept of every finished run below ``runs``; how many were new."""
    new = 0
    for folder in _finished(runs):
        to = kept / folder.relative_to(runs)
        if (to / SUMMARY).exists() and (to / SUMMARY).read_bytes() == (folder / SUMMARY).read_bytes():
            continue
        to.mkdir(parents=True, exist_ok=True)
        if (folder / _METRICS).exists():
            write_file(to / _METRICS, _curves((folder / _METRICS).read_text(encoding="utf-8")).encode())
        for name in _WHOLE:  # the summary last: it says that the rest is there
            if (folder / name).exists():
                write_file(to / name, (folder / name).read_bytes())
        new += 1
    return new


def take_over(kept: Path, runs: Path) -> int:
    """Copies kept runs to where they are looked for, unless they are there, finished or begun; how many."""
    new = 0
    for folder in _finished(kept):
        to = runs / folder.relative_to(kept)
        if not to.exists() and not to.with_name(f"{to.name}.partial").exists():
            shutil.copytree(folder, to)
            new += 1
    return new


def _finished(runs: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(runs.rglob(SUMMARY)))


def _curves(text: str) -> str:
    """All records but the wirings of single epochs, which are most of the file: of those the last."""
    lines = text.splitlines(keepends=True)
    wirings = [line for line in lines if json.loads(line)["kind"] == "wiring"]
    return "".join(line for line in lines if line not in wirings[:-1])
