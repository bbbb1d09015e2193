"""Docstrings of Python's standard library, each with the chapter of the library reference that its module is in.

For examples and tests: it is on every machine, in another version on each, so no figure is reported for it. Files are
parsed, never imported. A class or function gives one text; all texts of a module are in the same part.

Licence: PSF License Version 2. Citation: The Python Standard Library, https://docs.python.org/3/library.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from .locate import DataKind
from .texts import Labelled, TextDataset, split_by_group

TEST_SHARE = 0.25
FEWEST, SHORTEST = 40, 30  # texts of a class, characters of a text

_CHAPTERS = {
    "numbers": "decimal fractions numbers random statistics _pydecimal datetime _pydatetime _strptime calendar zoneinfo",
    "files": "pathlib shutil tempfile fileinput glob os posixpath ntpath genericpath filecmp zipfile tarfile gzip bz2 lzma _compression"
    " configparser csv plistlib tomllib netrc shelve dbm pickle pickletools copyreg _pyio mailbox",
    "network": "http urllib smtplib poplib imaplib ftplib socketserver xmlrpc ssl socket ipaddress webbrowser wsgiref nntplib telnetlib",
    "documents": "email html xml json mimetypes base64 quopri codecs encodings textwrap difflib string re gettext locale",
    "concurrency": "threading multiprocessing concurrent asyncio subprocess sched queue selectors signal",
    "windows": "tkinter turtle curses",
    "development": "unittest doctest pdb bdb cProfile profile pstats timeit trace tracemalloc pydoc typing venv ensurepip zipapp",
    "language": "ast dis inspect tokenize importlib pkgutil runpy symtable compileall traceback types abc contextlib dataclasses functools"
    " enum collections _collections_abc weakref copy opcode code codeop site linecache",
}  # fmt: skip


class StdlibTexts(DataKind[TextDataset]):
    name = "stdlib"
    comes_with = "Python"

    def read(self, folder: Path, found: str) -> TextDataset:
        library = Path(sysconfig.get_path("stdlib"))
        return split_by_group(self.name, docstrings(library), TEST_SHARE, FEWEST, f"{library} ({found})")


def docstrings(library: Path) -> Iterator[Labelled]:
    """The docstrings of the modules of all chapters; modules that this Python does not have are passed over."""
    for chapter, modules in _CHAPTERS.items():
        for module in modules.split():
            folder, file = library / module, library / f"{module}.py"
            for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [file] if file.is_file() else []:
                if "test" not in path.relative_to(library).parts[1:]:
                    yield from (Labelled(text, chapter, path.stem) for text in texts_of(path))


def texts_of(path: Path) -> Iterator[str]:
    """The docstrings of one file; none of one that cannot be read or parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = re.sub(r"\s+", " ", ast.get_docstring(node) or "").strip()
            if len(text) >= SHORTEST:
                yield text
