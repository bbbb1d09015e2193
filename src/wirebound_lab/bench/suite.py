"""The sections, and what they found as files: ``bench.json``, ``bench.md`` and ``bench.svg`` for each kind of processor."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from . import density, kinds, layers, linear, networks, scale, step, update, without_compiler
from .contest import Section, Settings
from .text import draw, markdown

SECTIONS: dict[str, Callable[[Settings], Section]] = {
    "linear": linear.measure,
    "conv": layers.measure_convolutions,
    "lstm": layers.measure_recurrent,
    "density": density.measure,
    "mnist": step.measure,
    "cifar": networks.measure_cifar,
    "speech": networks.measure_speech,
    "transformer": networks.measure_transformer,
    "update": update.measure,
    "rewire": update.measure_rewiring,
    "threads": linear.measure_threads,
    "scale": scale.measure,
    "without-compiler": without_compiler.measure,
    "limits": linear.measure_limits,
}


def choose(only: str | None) -> list[str]:
    """The sections that a list with commas names; all without one."""
    if only is None:
        return list(SECTIONS)
    names = [name.strip() for name in only.split(",") if name.strip()]
    wrong = [name for name in names if name not in SECTIONS]
    if wrong:
        raise ValueError(f"only (={wrong[0]!r}) must name sections of {', '.join(SECTIONS)}")
    if not names:
        raise ValueError(f"only (={only!r}) must name at least one section of {', '.join(SECTIONS)}")
    return [name for name in SECTIONS if name in names]


def write(folder: Path, sections: Sequence[Section], settings: Settings, about: dict[str, object]) -> list[Path]:
    """The files of a run, in the folder of its kind of processor, and what all kinds there reached; times are in seconds."""
    place = folder / settings.kind
    place.mkdir(parents=True, exist_ok=True)
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": about,
        "threads": settings.threads,
        "quick": settings.quick,
        "sections": [section.as_json() for section in sections],
    }
    found = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    texts = {"bench.json": found, "bench.md": markdown(sections, about), "bench.svg": draw(sections)}
    written = {place / name: text for name, text in texts.items() if text is not None}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return [*written, *kinds.write(folder)]
