"""Whether a folder holds the run that is meant: runs are known by their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wirebound_lab.run.record import RunFolderError


def check_same(identity: Mapping[str, Any], out: Path) -> None:
    """Raise unless the run in ``out``, finished or not, if there is one, has these settings."""
    for place in (out, out.with_name(out.name + ".partial")):
        path = place / "config.json"
        if not path.exists():
            continue
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error
        for name, value in identity.items():
            held = stored.get(name) if isinstance(stored, dict) else None
            if held != value:
                raise RunFolderError(f"{name} (={value!r}) must be that of the run in {out} (={held!r}) to resume it")
