"""What a module must offer to be a data set that lives in files (``mnist`` and ``cifar10`` do)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from .dataset import Dataset
from .sources import Source


class Kind(Protocol):
    """The search order and the fetching know a data set only through this."""

    @property
    def SUBFOLDERS(self) -> tuple[str, ...]:
        """Where, inside a data folder, the files may be (besides right in it)."""

    @property
    def PACKAGE_BYTES(self) -> int:
        """More than the packed npm package takes; sets its time limit."""

    def source(self) -> Source:
        """Where it comes from."""

    def missing(self, folder: Path) -> list[str]:
        """Names of the files that ``folder`` lacks; empty if the data set is there."""

    def read(self, folder: Path, found: str) -> Dataset:
        """The data set in ``folder``, checked; ``found`` becomes its ``source``."""

    def from_mirror(self, url: str, work: Path) -> None:
        """Put canonical, checked files into ``work`` from the web."""

    def from_package(self, package: Path, work: Path) -> None:
        """Put canonical, checked files into ``work`` from the packed npm package."""
