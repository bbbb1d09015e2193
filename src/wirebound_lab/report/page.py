"""The page: everything in one HTML file that opens from disk, and is either whole or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from .compare import comparison
from .experiment_section import anchors, experiment_section, verdict_badges
from .experiments import Experiment
from .markup import Html, fragment, tag
from .run_section import run_section
from .runs import ReportError, Run, read_run
from .wording import plural

# What says that a page can never be written there, unlike a full disk.
_WRONG_PLACE = (
    errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
OPEN_RUNS = 3  # more runs than that start folded


def write_report(folders: Sequence[Path], out: Path, experiments: Sequence[Experiment] = ()) -> Path:
    """Write one self-contained HTML page about these run folders to `out`, atomically; returns its path.

    `experiments`, if there are any, come first, each with its figures and what came of the paper's claims.
    """
    out = Path(out)
    if os.path.isdir(out):  # unlike Path.is_dir, no error for a name that is too long
        raise ReportError(f"out (={out}) must be a file to write, not a folder")
    text = render([read_run(folder) for folder in dict.fromkeys(map(Path, folders))], experiments)
    # In the same folder, so that the last step is a rename and a reader never meets half a page.
    unfinished = out.with_name(f".{out.name[:40]}.{os.getpid()}.unfinished")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            # JSON can hold half a letter (a lone surrogate), which no page can: it becomes a question mark.
            with open(unfinished, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, out)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in _WRONG_PLACE:
            raise
        raise ReportError(f"out (={out}) cannot be written: {error.strerror or error}") from error
    return out


def render(runs: Sequence[Run], experiments: Sequence[Experiment] = ()) -> str:
    """The whole page as text; the same folders give the same bytes."""
    if not runs and not experiments:
        raise ReportError("folders (=[]) must name at least one run folder or experiment")
    identifiers = [f"run-{index}" for index in range(1, len(runs) + 1)]
    is_open = len(runs) <= (0 if experiments else OPEN_RUNS)
    sections = [run_section(run, name, is_open) for run, name in zip(runs, identifiers, strict=True)]
    if experiments:
        heading, content = "Reproduction report", _experiments(experiments, runs, identifiers, sections)
        title = experiments[0].title if len(experiments) == 1 else f"{len(experiments)} experiments"
    else:
        heading = "Run report"
        content = fragment(comparison(runs, identifiers) if len(runs) > 1 else None, *sections)
        title = f"{len(runs)} runs" if len(runs) > 1 else runs[0].heading
    texts = {"title": fragment(title), "heading": heading, "content": content}
    packaged = {"style": _packaged("style.css"), "script": _packaged("script.js")}
    return Template(_packaged("page.html")).substitute(texts, **packaged)


def _experiments(
    experiments: Sequence[Experiment], runs: Sequence[Run], identifiers: Sequence[str], sections: Sequence[Html]
) -> Html:
    """Contents, the experiments, then the runs that they name."""
    names = anchors(experiments)
    links = {run.folder: identifier for run, identifier in zip(runs, identifiers, strict=True)}
    return fragment(
        _contents(experiments, names, runs, identifiers) if len(experiments) + len(runs) > 1 else None,
        *(experiment_section(item, name, links) for item, name in zip(experiments, names, strict=True)),
        tag("h2", "Runs worth a look", id="runs", class_="part") if runs else None,
        *sections,
    )


def _contents(
    experiments: Sequence[Experiment], names: Sequence[str], runs: Sequence[Run], identifiers: Sequence[str]
) -> Html:
    rows = []
    for item, name in zip(experiments, names, strict=True):
        where = tag("span", item.paper or item.name, class_="where")
        rows.append(tag("li", where, tag("a", item.title, href=f"#{name}"), verdict_badges(item.findings)))
    shown = [
        tag("li", tag("a", run.heading, href=f"#{identifier}"), f" ({run.name})")
        for run, identifier in zip(runs, identifiers, strict=True)
    ]
    verdicts = [finding.holds for item in experiments for finding in item.findings]
    held, failed, open_ = (sum(holds is verdict for holds in verdicts) for verdict in (True, False, None))
    total = f"{held} of {plural(len(verdicts), 'claim')} hold here, {failed} do not, {open_} not decided."
    return tag(
        "nav",
        tag("h2", "Contents"),
        tag("p", total, class_="hint") if verdicts else None,
        tag("ol", *rows, class_="contents"),
        fragment(tag("h3", "Runs"), tag("ul", *shown, class_="links")) if shown else None,
        class_="panel",
        aria_label="Contents",
    )


def _packaged(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
