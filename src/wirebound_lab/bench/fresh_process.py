"""A measurement in a Python of its own: memory can only be measured where nothing else has been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wirebound


def run_fresh(module: str, settings: Mapping[str, Any], what: str) -> Any:
    """``python -m module SETTINGS`` with this very wirebound: the JSON that it prints. ``what`` names it in an error."""
    source = str(Path(wirebound.__file__).resolve().parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    outcome = subprocess.run(
        [sys.executable, "-m", module, json.dumps(settings)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if outcome.returncode:
        last = outcome.stderr.strip().splitlines()[-1:]
        raise OSError(f"the process of {what} failed: {' '.join(last)}")
    return json.loads(outcome.stdout)
