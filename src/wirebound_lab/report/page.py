"""The page: everything in one HTML file that opens from disk, and is either whole or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from .compare import comparison
from .experiment import Experiment
from .experiment_section import anchors, experiment_section, verdict_badges
from .markup import Html, fragment, tag
from .run_section import run_section
from .runs import ReportError, Run, read_run
from .wording import data_name, method_name, plural

# What says that a page can never be written there, unlike a full disk.
_WRONG_PLACE = (
    *(errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG),
    errno.ELOOP,
)
OPEN_RUNS = 3  # more runs than that start folded

# Nothing can be loaded from anywhere: the browser itself holds the page to being self-contained.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


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
    sections = [
        run_section(run, identifier, is_open=len(runs) <= (0 if experiments else OPEN_RUNS))
        for run, identifier in zip(runs, identifiers, strict=True)
    ]
    if experiments:
        content = _experiments(experiments, runs, identifiers, sections)
    else:
        content = fragment(comparison(runs, identifiers) if len(runs) > 1 else None, *sections)
    title = _title(runs, experiments)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – wirebound"),
        Html(f"<style>{_packaged('style.css')}</style>"),
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        tag(
            "header", _mark(), tag("span", "wirebound", class_="word"), tag("h1", "Reproduction report" if experiments else "Run report"), class_="top"
        ),
        tag("main", content, id="results"),
        tag(
            "footer",
            tag(
                "p",
                "Written by wirebound from its result files alone. Accuracies of runs are those of the last epoch.",
            ),
        ),
        Html(f"<script>{_packaged('script.js')}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en" class="plain">{head}{body}</html>\n'


def _title(runs: Sequence[Run], experiments: Sequence[Experiment]) -> str:
    if experiments:
        return experiments[0].title if len(experiments) == 1 else f"{len(experiments)} experiments"
    return f"{len(runs)} runs" if len(runs) > 1 else f"{method_name(runs[0].method)} on {data_name(runs[0].data)}"


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
    rows = [
        tag(
            "li",
            tag("span", item.paper or item.name, class_="where"),
            tag("a", item.title, href=f"#{name}"),
            verdict_badges(item.findings),
        )
        for item, name in zip(experiments, names, strict=True)
    ]
    shown = [
        tag("li", tag("a", f"{method_name(run.method)} on {data_name(run.data)}", href=f"#{identifier}"), f" ({run.name})")
        for run, identifier in zip(runs, identifiers, strict=True)
    ]
    decided = [finding.holds for item in experiments for finding in item.findings if finding.holds is not None]
    claims = sum(len(item.findings) for item in experiments)
    total = f"{sum(decided)} of {plural(claims, 'claim')} hold here, {len(decided) - sum(decided)} do not, "
    total += f"{claims - len(decided)} not decided."
    return tag(
        "nav",
        tag("h2", "Contents"),
        tag("p", total, class_="hint") if claims else None,
        tag("ol", *rows, class_="contents"),
        fragment(tag("h3", "Runs"), tag("ul", *shown, class_="links")) if shown else None,
        class_="panel",
        aria_label="Contents",
    )


def _packaged(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _mark() -> Html:
    """Two layers of neurons, most of the possible connections absent."""
    dots = [tag("circle", cx=x, cy=y, r=2.6) for x in (5, 23) for y in (5, 14, 23)]
    return tag(
        "svg",
        tag("path", d="M5 5L23 14M5 23L23 5M5 14L23 23"),
        *dots,
        viewBox="0 0 28 28",
        class_="mark-logo",
        aria_hidden="true",
    )
