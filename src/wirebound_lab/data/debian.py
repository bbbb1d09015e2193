"""Debian's package descriptions: about 30,000 English texts, of which each belongs to one of 35 sections of the archive.

The text is the short and the long description, the class the section (``games``, ``science``, ``mail`` …). Two index
files of Debian 12.15 (July 2026), which is the last release of Debian 12, so they no longer change; any machine can fetch
them, apt is not needed.

What is done so that the class is not simply read off:

- Sections that name what a package is for apt, not what it is about (libraries, documentation, debug symbols …) are left out.
- The names of all sections are taken out of all texts, whatever the class ("python3" too: digits at the end do not help).
- A source package gives one text a section: its -dev, -data and -prof packages repeat it.
- All texts of a source package are in the same part. A fifth of the source packages is the test part, by their names.

Licence: descriptions have that of their packages, all free by the Debian Free Software Guidelines.
Citation: The Debian Project, Debian 12 "bookworm", main, amd64, https://www.debian.org.
"""

import io
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

from .content import DataError, File, check, read_file, told_as
from .download import download
from .locate import DataKind
from .texts import Labelled, TextDataset, split_by_group

TEST_SHARE = 0.2
FEWEST = 100  # texts of a class
_UNPACKED_LIMIT = 200_000_000
_ROLES = {  # sections by what a package is to the system
    "libs", "libdevel", "doc", "debug", "oldlibs", "metapackages", "tasks", "misc", "introspection", "localization", "cli-mono",
}  # fmt: skip
_WORD = re.compile(r"[^\W_]+(?:[-+][^\W_]+)*")
# Said otherwise than the section is called.
_OTHER_NAMES = {"golang": ("go",), "gnu-r": ("r", "cran", "bioconductor"), "javascript": ("node", "nodejs", "js"), "hamradio": ("ham",)}


class Debian(DataKind[TextDataset]):
    name = "debian"
    subfolders = ("debian",)
    files = (
        File("Packages.xz", 8790396, "9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5"),
        File("Translation-en.xz", 6107304, "a3d4a0bfd8e9242810b0885eda7c1a6e05dac15b333ddbaab03ba56f2dfa4bf0"),
    )
    mirrors = ("https://deb.debian.org/debian/dists/bookworm/main/", "https://archive.debian.org/debian/dists/bookworm/main/")

    def read(self, folder: Path, found: str) -> TextDataset:
        contents = []
        for file in self.files:
            contents.append(read_file(folder / file.name, file.size))
            check(contents[-1], file, str(folder / file.name))
        return split_by_group(self.name, read_descriptions(*contents), TEST_SHARE, FEWEST, found)

    def from_mirror(self, url: str, work: Path) -> None:
        for file, place in zip(self.files, ("binary-amd64/", "i18n/"), strict=True):
            target = work / file.name
            download(f"{url}{place}{file.name}", target, limit=file.size)
            check(target.read_bytes(), file, f"{url}{place}{file.name}")


def read_descriptions(packages: bytes, translation: bytes) -> Iterator[Labelled]:
    """One cleaned text for each source package and topic, from the two index files as they are (.xz)."""
    texts = {s["Description-md5"]: s["Description-en"] for s in stanzas(translation, "Translation-en.xz")}
    found: list[tuple[str, str, str]] = []
    seen: set[tuple[str, str]] = set()
    for stanza in stanzas(packages, "Packages.xz"):
        source = stanza.get("Source", stanza["Package"]).split(" ")[0]
        section = stanza["Section"].rpartition("/")[2]
        text = texts.get(stanza.get("Description-md5", ""))
        if text is None or section in _ROLES or (source, section) in seen:
            continue
        seen.add((source, section))
        found.append((text, section, source))
    names = {section for _, section, _ in found}
    hidden = names | {other for section in names for other in _OTHER_NAMES.get(section, ())}
    for text, section, source in found:
        yield Labelled(without(text, hidden), section, source)


def without(text: str, hidden: set[str]) -> str:
    """The text without these words, nor those of them with digits behind or joined by a hyphen."""

    def kept(match: re.Match[str]) -> str:
        word = match.group().lower()
        parts = [word, *re.split("[-+]", word)]
        return "" if any(part.rstrip("0123456789") in hidden for part in parts) else match.group()

    return re.sub(r"\s+", " ", _WORD.sub(kept, text)).strip()


def stanzas(packed: bytes, where: str) -> Iterator[dict[str, str]]:
    """The paragraphs of an index file as fields; lines that belong to a field are joined by spaces."""
    fields: dict[str, str] = {}
    name, read = "", 0
    for raw in _lines(packed, where):
        read += len(raw)
        if read > _UNPACKED_LIMIT:
            raise DataError(f"{where}: must unpack to at most {_UNPACKED_LIMIT} bytes")
        line = raw.decode("utf-8", "replace").rstrip("\n")
        if not line:
            if fields:
                yield fields
            fields = {}
        elif line.startswith(" "):
            if line != " .":  # an empty line, as the format writes it
                fields[name] = fields.get(name, "") + " " + line.strip()
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def _lines(packed: bytes, where: str) -> Iterator[bytes]:
    with told_as(f"{where}: must be an intact .xz", lzma.LZMAError, EOFError), lzma.open(io.BytesIO(packed)) as stream:
        yield from stream
