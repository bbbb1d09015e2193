"""A trial as a process: ``wirebound train`` with one thread, its own run folder, and what it said if it failed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from wirebound_lab.run.record import RunFolderError
from wirebound_lab.sweep.outcome import FAILED, INTERRUPTED, Outcome, read_outcome
from wirebound_lab.sweep.plan import Trial

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
COMMAND = (sys.executable, "-m", "wirebound", "train")


class Job:
    """A running trial."""

    def __init__(self, trial: Trial, folder: Path, scratch: Path) -> None:
        self.trial, self.folder = trial, folder
        self._said = scratch / f"{folder.name}.txt"
        settings = scratch / f"{folder.name}.json"
        settings.write_text(json.dumps({**trial.config.as_dict(), "threads": 1}), encoding="utf-8")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                # What an earlier start has left is gone on with; where there is nothing, the run begins.
                [*COMMAND, "--config", str(settings), "--out", str(folder), "--resume", "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, **{name: "1" for name in _THREADS}},
                start_new_session=True,  # Ctrl-C reaches the sweep, which passes it on
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    def poll(self) -> Outcome | None:
        """How it ended, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            try:
                return read_outcome(self.folder)
            except RunFolderError as error:
                return Outcome(FAILED, error=f"left no readable run folder: {error}", folder=str(self.folder))
        if code in _INTERRUPTED:
            try:
                return read_outcome(self.folder)  # it had finished, and was interrupted on its way out
            except RunFolderError:
                return Outcome(INTERRUPTED, folder=str(self.folder))
        return Outcome(FAILED, error=self._reason(code), folder=str(self.folder))

    def interrupt(self) -> None:
        """As Ctrl-C would: it may write a checkpoint before it ends."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def end(self, seconds: float) -> None:
        """Give it some time to end, then end it."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    def _reason(self, code: int) -> str:
        if code < 0:
            name = signal.Signals(-code).name
            return f"ended by {name}{' (often: out of memory)' if name == 'SIGKILL' else ''}"
        # Advice on what to do next stands behind the error itself.
        lines = [line for line in self.said().splitlines() if line.strip() and not line.startswith("next: ")]
        return lines[-1].removeprefix("wirebound: ") if lines else f"exit code {code}"


def _end_with_parent() -> None:
    """In the child: end when the sweep is killed, so that the next start does not meet a run still being written."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
