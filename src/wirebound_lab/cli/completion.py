"""Print the completion script of a shell. To have it in every new shell:

  bash   wirebound completion bash > ~/.local/share/bash-completion/completions/wirebound
  zsh    wirebound completion zsh > DIR/_wirebound      where DIR is in $fpath, before compinit
  fish   wirebound completion fish > ~/.config/fish/completions/wirebound.fish

example: eval "$(wirebound completion bash)"
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from wirebound_lab import data as datasets

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    from wirebound_lab.cli.main import build_parser

    print(script(build_parser(), options.shell))
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a parser, which is changed on the way: make one of its own for this."""
    from wirebound_lab.paper.reproduce import FIGURES  # here, because no other command needs the figures

    for action in _actions(parser):
        if action.dest == "data" and action.choices is None:
            action.choices = datasets.names()
        elif action.dest == "figures":
            action.choices = tuple(FIGURES)
        elif action.type is Path:
            folder = action.dest in ("folders", "out")
            action.complete = shtab.DIRECTORY if folder else shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from _actions(command)
        else:
            yield action
