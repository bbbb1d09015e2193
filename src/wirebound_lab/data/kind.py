"""What a module must offer to be a data set that lives in files (``mnist``, ``cifar10``, ``speech`` … do)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from .sources import Source

# A way to get the files into a working folder: what it is called in errors, and what does it.
Route: TypeAlias = tuple[str, Callable[[], None]]

Read_co = TypeVar("Read_co", covariant=True)  # what reading gives


class Kind(Protocol[Read_co]):
    """The search order and the fetching know a data set only through this."""

    @property
    def SUBFOLDERS(self) -> tuple[str, ...]:
        """Where, inside a data folder, the files may be (besides right in it)."""

    def source(self) -> Source:
        """Where it comes from."""

    def missing(self, folder: Path) -> list[str]:
        """Names of the files that ``folder`` lacks; empty if the data set is there."""

    def read(self, folder: Path, found: str) -> Read_co:
        """The data set in ``folder``, checked; ``found`` becomes its ``source``."""

    def routes(self, work: Path) -> Iterable[Route]:
        """The ways to put canonical, checked files into ``work``, best first; none if they cannot be fetched."""
