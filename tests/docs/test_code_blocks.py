"""Every code block of the README and of docs/ is run: Python blocks of a page one after another in one namespace, in a
folder of their own; lines that call ``wirebound`` are parsed, and run on pages where they are quick.

Two comments steer it, and neither is seen on the page:

    <!-- setup ... -->            Python that runs before the first block of the page
    <!-- not run: REASON -->      right before a block that cannot be run here
"""

import os
import re
import shlex
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from wirebound_lab.cli import main
from wirebound_lab.cli.main import build_parser

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
RUN_COMMANDS = {"start.md"}
NOT_RUN_AT_MOST = 2  # blocks in all pages together; each says why

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n+)?^```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)
_INCLUDED = re.compile(r'^--8<-- "')


def _blocks(page: Path, languages: tuple[str, ...]):
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found["language"] in languages and not _INCLUDED.match(found["text"]):
            line = page.read_text(encoding="utf-8")[: found.start("text")].count("\n")
            yield line, found["text"], found["reason"]


def _python_pages():
    return [page for page in PAGES if any(reason is None for _, _, reason in _blocks(page, ("python",)))]


@pytest.fixture
def quiet_place(tmp_path, monkeypatch):
    """A folder to write into; what blocks change in the process is put back afterwards."""
    monkeypatch.chdir(tmp_path)
    state, environment = torch.get_rng_state(), dict(os.environ)
    torch.manual_seed(0)
    yield tmp_path
    torch.set_rng_state(state)
    os.environ.clear()
    os.environ.update(environment)
    if dist.is_initialized():  # the page about processes begins a group of one
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", _python_pages(), ids=lambda page: page.name)
def test_python_blocks_run(page, quiet_place):
    namespace = {"__name__": "__docs__"}
    for setup in _SETUP.findall(page.read_text(encoding="utf-8")):
        exec(compile(setup, f"{page.name}, setup", "exec"), namespace)
    for line, text, reason in _blocks(page, ("python",)):
        if reason is None:
            # With as many empty lines before it, an error names the line of the page.
            exec(compile("\n" * line + text, str(page), "exec"), namespace)


def _commands(page: Path):
    for _, text, reason in _blocks(page, ("", "sh", "console")):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if line.startswith("wirebound ") else ["..."]
            if reason is None and not {"...", "…"} & set(words):
                yield words[1 : words.index(">") if ">" in words else None]


COMMANDS = [(page, words) for page in PAGES for words in _commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else value.name)
def test_commands_are_understood(page, words):
    build_parser().parse_args(words)


@pytest.mark.parametrize("name", sorted(RUN_COMMANDS))
def test_commands_run(name, quiet_place):
    commands = [words for page, words in COMMANDS if page.name == name]
    assert commands
    for words in commands:
        assert main(words) == 0, words


def test_blocks_that_are_not_run_are_few():
    left_out = [(page.name, reason) for page in PAGES for _, _, reason in _blocks(page, ("python",)) if reason is not None]
    assert len(left_out) <= NOT_RUN_AT_MOST, left_out


def test_pages_have_blocks_at_all():
    assert len(_python_pages()) >= 6
    assert len(COMMANDS) >= 15
