"""A measurement in a Python of its own: memory can only be measured where nothing else has been."""

import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import wirebound


def run_fresh(
    function: Callable[..., dict[str, float]], environment: Mapping[str, str] = MappingProxyType({}), /, **arguments: Any
) -> dict[str, float]:
    """What a function of a module returns in a fresh Python with this very wirebound."""
    source = str(Path(wirebound.__file__).resolve().parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    name = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-m", __name__, name, json.dumps(arguments)]
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    outcome = subprocess.run(command, capture_output=True, text=True, env=variables)
    if outcome.returncode:
        raise OSError(f"the process of {name} failed: {' '.join(outcome.stderr.strip().splitlines()[-1:])}")
    found: dict[str, float] = json.loads(outcome.stdout)
    return found


class Peak:
    """Highest resident memory of this process, where the system allows it in parts."""

    before = 0

    def read(self) -> int:
        """Bytes, since the last ``restart``."""
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def restart(self) -> None:
        """Forget the peak so far; where this is not possible, later readings include it."""
        self.before = max(self.before, self.read())
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))))
