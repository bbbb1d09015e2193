"""The page: everything in one HTML file that opens from disk, and is either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from .compare import comparison
from .markup import Html, fragment, tag
from .run_section import run_section
from .runs import ReportError, Run, read_run
from .wording import data_name, method_name

OPEN_RUNS = 3  # more runs than that start folded

# Nothing can be loaded from anywhere: the browser itself holds the page to being self-contained.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write one self-contained HTML page about these run folders to `out`, atomically; returns its path."""
    out = Path(out)
    if out.is_dir():
        raise ReportError(f"out (={out}) must be a file to write, not a folder")
    text = render([read_run(folder) for folder in dict.fromkeys(map(Path, folders))])
    out.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is a rename and a reader never meets half a page.
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.unfinished")
    try:
        with open(unfinished, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, out)
    finally:
        unfinished.unlink(missing_ok=True)
    return out


def render(runs: Sequence[Run]) -> str:
    """The whole page as text; the same run folders give the same bytes."""
    if not runs:
        raise ReportError("folders (=[]) must name at least one run folder")
    identifiers = [f"run-{index}" for index in range(1, len(runs) + 1)]
    several = len(runs) > 1
    title = f"{len(runs)} runs" if several else f"{method_name(runs[0].method)} on {data_name(runs[0].data)}"
    content = fragment(
        comparison(runs, identifiers) if several else None,
        *(
            run_section(run, identifier, is_open=len(runs) <= OPEN_RUNS)
            for run, identifier in zip(runs, identifiers, strict=True)
        ),
    )
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
            "header", _mark(), tag("span", "wirebound", class_="word"), tag("h1", "Run report"), class_="top"
        ),
        tag("main", content, id="results"),
        tag(
            "footer",
            tag(
                "p",
                "Written by wirebound from run folders alone. Accuracies are those of the last epoch.",
            ),
        ),
        Html(f"<script>{_packaged('script.js')}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en" class="plain">{head}{body}</html>\n'


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
