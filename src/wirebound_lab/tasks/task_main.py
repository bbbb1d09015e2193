"""The command line of an experiment with a task of its own: a flag for each setting, clear errors, exit codes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirebound.checkpoint import CheckpointError
from wirebound.engine.modules import DivergedError
from wirebound_lab.data import DataError
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.interrupt import Interrupted
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.tasks.task import Task
from wirebound_lab.tasks.task_config import TaskConfig
from wirebound_lab.tasks.task_run import run_task

_PARSERS: dict[str, Any] = {"int": int, "float": float, "str": str}


def task_parser(name: str, text: str, config: type[TaskConfig]) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog=f"python -m wirebound_lab.paper.{name}", description=text.split("\n")[0])
    result.add_argument("--out", type=Path, required=True, help="run folder to write")
    result.add_argument("--overwrite", action="store_true", help="replace the run folder if it exists")
    result.add_argument("--resume", action="store_true", help="go on from the last epoch of an unfinished run")
    for setting in dataclasses.fields(config):
        kind = str(setting.type).replace(" | None", "")
        words = setting.metadata["help"] + (f" (default: {setting.default})" if setting.default is not None else "")
        common = {"dest": setting.name, "help": words.replace("%", "%%"), "default": setting.default}
        flag = "--" + setting.name.replace("_", "-")
        if kind == "bool":
            result.add_argument(flag, action="store_true", **common)
        else:
            result.add_argument(flag, type=_PARSERS[kind], choices=setting.metadata.get("choices"), **common)
    return result


def main_of(
    name: str,
    text: str,
    config: type[TaskConfig],
    task: type[Task],
    result: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """One run from the command line; ``result`` is how its summary is told, in the form of ``str.format``."""
    options = vars(task_parser(name, text, config).parse_args(arguments))
    out, overwrite, resume = options.pop("out"), options.pop("overwrite"), options.pop("resume")
    try:
        summary = run_task(task, config(**options), out, overwrite=overwrite, resume=resume)
    except Interrupted as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.code
    except (ConfigError, RunFolderError, CheckpointError, DataError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except (DivergedError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    print(
        f"{result.format(**summary)}; {summary['max_active']:,} of {summary['possible']:,} connections; run folder: {out}"
    )
    return 0
