"""Ctrl-C and a polite request to end (SIGTERM): the first asks the run to stop at the next good moment."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and stopped with a checkpoint; the message says how to go on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code  # of the process: 128 + the number of the signal

    def __reduce__(self) -> tuple[type[Interrupted], tuple[str, int]]:
        return Interrupted, (str(self), self.code)


class StopRequest:
    """While this is open, a first signal is noted; a second one interrupts at once, as it always did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # who asked not to be disturbed is not
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise Interrupted("interrupted twice: the last checkpoint counts", 128 + number)
        self.signal = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
