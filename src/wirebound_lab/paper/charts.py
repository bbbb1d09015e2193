"""The pieces of ``experiment.json`` that figures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wirebound_lab.paper.curves import Mean, point

Piece = dict[str, Any]
METHOD_NAMES = {
    "deep-r": "DEEP R", "soft-deep-r": "soft-DEEP R", "fixed": "fixed connectivity", "dense": "fully connected",
    "pruning": "pruning", "l1-shrinkage": "ℓ1-shrinkage",
}  # fmt: skip


def axis(label: str, scale: str = "linear", percent: bool = False) -> Piece:
    return {"label": label, "scale": scale, "percent": percent}


CONNECTIVITY = axis("connectivity", "log", percent=True)


def lines(id: str, title: str, x: Piece, y: Piece, series: Sequence[Piece]) -> Piece:
    """A chart; series without points are left out."""
    return {"id": id, "kind": "lines", "title": title, "x": x, "y": y, "series": [s for s in series if s["points"]]}


def series(method: str, points: Sequence[Piece], style: str = "line", name: str | None = None) -> Piece:
    """``method`` decides the colour, ``name`` what it is called."""
    return {"name": name or METHOD_NAMES.get(method, method), "method": method, "style": style, "points": list(points)}


def rule(method: str, mean: Mean | None, name: str | None = None) -> Piece:
    """A horizontal line over the whole width."""
    return series(method, [] if mean is None else [point(None, mean)], "rule", name)


def against_connectivity(id: str, title: str, label: str, points: Mapping[str, Sequence[Piece]], *more: Piece) -> Piece:
    """The points of each method; soft-DEEP R's connectivity is the highest it ever met."""
    found = [series(m, p, "points" if m in ("pruning", "l1-shrinkage") else "line") for m, p in points.items()]
    title += " (soft-DEEP R: the highest ever met)"
    return lines(id, title, CONNECTIVITY, axis(label, percent=True), [*found, *more])
