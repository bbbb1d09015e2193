"""A process watched from outside: the most memory it ever had, kept on disk while it runs."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL = 1.0  # seconds between two looks; the kernel's own high-water mark misses nothing in between


def peak_memory(process: int) -> int:
    """The highest resident memory of a process up to now, in bytes, as the kernel counts it; 0 where it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


class Watched:
    """A command that runs, whose peak memory is written to ``record`` whenever it grows; earlier sittings count too."""

    def __init__(self, command: Sequence[str], record: Path, environment: Mapping[str, str]) -> None:
        self.record = record
        self.peak = int(json.loads(record.read_text(encoding="utf-8"))["peak_bytes"]) if record.exists() else 0
        record.parent.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(command, env={**os.environ, **environment})

    def look(self) -> bool:
        """Note its memory; False when it has ended."""
        running = self.process.poll() is None
        now = peak_memory(self.process.pid)
        if now > self.peak:
            self.peak = now
            partial = self.record.with_suffix(".part")
            partial.write_text(json.dumps({"peak_bytes": now}), encoding="utf-8")
            partial.replace(self.record)
        return running


def run_watched(
    jobs: Mapping[str, tuple[Sequence[str], Path]], at_once: int, environment: Mapping[str, str], poll: float = POLL
) -> list[str]:
    """Run the commands, so many at a time, each with the file for its peak memory; the names of those that failed."""
    waiting, running, failed = list(jobs.items()), dict[str, Watched](), list[str]()
    while waiting or running:
        while waiting and len(running) < at_once:
            name, (command, record) = waiting.pop(0)
            running[name] = Watched(command, record, environment)
        for name, one in list(running.items()):
            if not one.look():
                del running[name]
                failed += [name] if one.process.returncode else []
        time.sleep(poll)
    return failed
