"""The pieces of ``experiment.json`` that figures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirebound_lab.paper.curves import Mean, point
from wirebound_lab.paper.figure import Scale

METHOD_NAMES = {
    "deep-r": "DEEP R",
    "soft-deep-r": "soft-DEEP R",
    "fixed": "fixed connectivity",
    "dense": "fully connected",
    "pruning": "pruning",
    "l1-shrinkage": "ℓ1-shrinkage",
}


def axis(label: str, scale: str = "linear", percent: bool = False) -> dict[str, Any]:
    return {"label": label, "scale": scale, "percent": percent}


def lines(
    id: str, title: str, x: dict[str, Any], y: dict[str, Any], series: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A chart; series without points are left away."""
    return {"id": id, "kind": "lines", "title": title, "x": x, "y": y, "series": [s for s in series if s["points"]]}


def series(method: str, points: Sequence[dict[str, Any]], style: str = "line", name: str | None = None) -> dict[str, Any]:
    """``method`` decides the colour, ``name`` what it is called."""
    return {"name": name or METHOD_NAMES.get(method, method), "method": method, "style": style, "points": list(points)}


def rule(method: str, mean: Mean | None, name: str | None = None) -> dict[str, Any]:
    """A horizontal line over the whole width."""
    return series(method, [] if mean is None else [point(None, mean)], "rule", name)


def finding(
    scale: Scale, claim: str, paper: str, ours: str, seeds: int, holds: bool | None, note: str | None = None
) -> dict[str, Any]:
    """A claim beside what was found. A quick look decides nothing."""
    if scale is Scale.QUICK:
        holds, note = None, "a quick look on small data decides nothing"
    found: dict[str, Any] = {"claim": claim, "paper": paper, "ours": ours, "seeds": seeds, "holds": holds}
    return found if note is None else {**found, "note": note}
