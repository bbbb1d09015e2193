"""What can go wrong with data: content that is not what it should be, and data that is nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class DataError(ValueError):
    """A file, an archive or an argument breaks a rule; the text names it, the rule and the value."""


@dataclass(frozen=True)
class Attempt:
    """One place that was tried, and why it did not give the data set."""

    where: str
    reason: str


class DataUnavailable(DataError):
    """A data set was found nowhere; ``attempts`` holds every place that was tried, in order."""

    def __init__(self, name: str, attempts: Sequence[Attempt], advice: str = "") -> None:
        self.name = name
        self.attempts = tuple(attempts)
        lines = [f"data set {name!r} was not found. Tried, in this order:"]
        lines += [f"  {number}. {a.where}: {a.reason}" for number, a in enumerate(self.attempts, 1)]
        lines += [advice] if advice else []
        lines.append(
            f"Set WIREBOUND_DATA to a folder that holds {name}/, or pass its folder as path;"
            f" the file names are in wirebound_lab.data.{name}."
        )
        super().__init__("\n".join(lines))
