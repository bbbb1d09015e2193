"""An entry of a shared storage as we read it: other machines wrote it, and the file may be damaged.

What is not of its kind counts as missing, so that an entry can be useless but never harmful.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wirebound_lab.run.config import ConfigError, RunConfig, make_config
from wirebound_lab.run.run_files import is_count, is_number
from wirebound_lab.sweep.outcome import FAILED, INTERRUPTED

_MOST_PROCESSES = 1 << 22  # what Linux can number


@dataclass(frozen=True)
class Entry:
    """A trial of the study, checked."""

    number: int
    state: Any  # of Optuna's states
    config: RunConfig | None  # None: it has no settings that we can read
    accuracy: float | None
    seconds: float | None
    ended: str | None  # how we said that it ended, where Optuna only knows that it failed
    pid: int | None
    beat: float | None  # when it last gave a sign of life
    again: dict[str, Any]  # what a trial must have to be run once more
    key: str | None
    evaluated_on: str | None
    folder: str | None
    error: str | None
    host: str | None


def read_entry(frozen: Any) -> Entry:
    """The entry of one of Optuna's trials."""
    said = frozen.user_attrs if isinstance(frozen.user_attrs, dict) else {}
    values = frozen.values if isinstance(frozen.values, list) else []
    pid, beat, seconds = (said.get(name) for name in ("pid", "beat", "seconds"))
    started = frozen.datetime_start.timestamp() if frozen.datetime_start is not None else None
    texts = {name: said.get(name) for name in ("key", "evaluated_on", "folder", "error", "host")}
    return Entry(
        number=frozen.number,
        state=frozen.state,
        config=_config(said.get("settings")),
        accuracy=float(values[0]) if len(values) == 1 and is_number(values[0]) else None,
        seconds=float(seconds) if is_number(seconds) else None,
        ended=said.get("state") if said.get("state") in (FAILED, INTERRUPTED) else None,
        pid=pid if is_count(pid) and 0 < pid < _MOST_PROCESSES else None,
        beat=float(beat) if is_number(beat) else started,
        again={name: said[name] for name in ("key", "name", "settings") if name in said},
        **{name: text if isinstance(text, str) else None for name, text in texts.items()},
    )


@contextlib.contextmanager
def said_in_one_line(storage: str) -> Iterator[None]:
    """Whatever Optuna and the driver of a database raise, as one error that names the storage."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
        raise ConfigError(f"storage (={storage}) cannot be used: {what}; mend it, or name another") from error


def _config(settings: Any) -> RunConfig | None:
    try:
        return make_config(settings) if isinstance(settings, dict) else None
    except ConfigError:
        return None
