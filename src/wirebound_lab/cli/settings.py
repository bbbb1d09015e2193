"""The settings of runs as options of the command line, from their declarations."""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from wirebound.methods import METHODS, Method, Setting, register
from wirebound_lab.run import config as runs
from wirebound_lab.run.config import PRESETS, RUN_SETTINGS, ConfigError, RunConfig, import_modules, make_config, tasks
from wirebound_lab.run.resume import settings_to_resume, stored_settings


def load_methods(arguments: Sequence[str]) -> None:
    """Methods of other packages (entry points ``wirebound.methods``), and of the modules that --import names."""
    for point in entry_points(group="wirebound.methods"):
        found = point.load()
        if isinstance(found, type) and issubclass(found, Method):
            register(found)
    named = [after for word, after in itertools.pairwise(arguments) if word == "--import"]
    import_modules([*named, *(word.partition("=")[2] for word in arguments if word.startswith("--import="))])


def add_common(parser: argparse.ArgumentParser) -> None:
    """What ``train`` and ``sweep`` have in common."""
    parser.add_argument("--preset", choices=sorted(PRESETS), help="settings to start from (default: those of each option)")
    text = "import a module that registers methods of your own; it may be given several times"
    parser.add_argument("--import", action="append", dest="imports", default=argparse.SUPPRESS, metavar="MODULE", help=text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """An option for each setting of a run, of the methods and of the tasks."""
    groups: list[tuple[str, tuple[Setting, ...], Mapping[str, Any]]] = [("settings of every run", RUN_SETTINGS, {})]
    groups += [(f"method {name} ({kind.title})", kind.settings, {}) for name, kind in METHODS.items()]
    groups += [(f"task {name}: {kind.title}", kind.settings, kind.defaults) for name, kind in tasks().items()]
    declared: dict[str, list[Setting]] = {}
    for setting in [setting for _, settings, _ in groups for setting in settings]:
        declared.setdefault(setting.name, []).append(setting)
    added = {"imports"}
    for title, settings, defaults in groups:
        again = [s for s in settings if s.name in added and (title.startswith("method") or _brief(s) != _brief(declared[s.name][0]))]
        others = [*map(_brief, again), *(f"{name} {_text(value)}" for name, value in defaults.items())]
        group = parser.add_argument_group(title, "also: " + ", ".join(others).replace("%", "%%") if others else None)
        for setting in settings:
            if setting.name not in added:
                _add(group, setting, declared[setting.name])
        added |= {setting.name for setting in settings}


def _add(group: Any, setting: Setting, declared: Sequence[Setting]) -> None:
    kind = setting.type.replace(" | None", "")
    # A value may be one of a task that declares the setting otherwise: which of them is right is found when all is known.
    choices = tuple(dict.fromkeys(choice for other in declared for choice in other.choices))
    choices = {"task": tuple(tasks()), "method": tuple(METHODS)}.get(setting.name, choices)
    text = setting.help + (f" (default: {_text(setting.default)})" if setting.default is not None else "")
    common = {"default": argparse.SUPPRESS, "help": text.replace("%", "%%"), "dest": setting.name}
    how: dict[str, Any] = {"metavar": kind.upper()}
    if kind == "bool":
        how = {"action": argparse.BooleanOptionalAction}
    elif kind.startswith("list"):
        how = {"nargs": "*", "metavar": "N"}
    elif choices and (setting.name in ("task", "method") or all(other.choices for other in declared)):
        how = {"choices": choices}
    group.add_argument("--" + setting.name.replace("_", "-"), **common, **how)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


def _brief(setting: Setting) -> str:
    said = f"{setting.name} {_text(setting.default)}" if setting.default is not None else setting.name
    return f"{said} ({', '.join(setting.choices)})" if setting.choices else said


def read_options(options: argparse.Namespace) -> RunConfig:
    """The settings of a command line: preset, config file, options, in rising rank."""
    from_file = runs.read_settings(options.config) if options.config else {}
    declared = [RUN_SETTINGS, *(kind.settings for kind in METHODS.values()), *(kind.settings for kind in tasks().values())]
    names = {setting.name for settings in declared for setting in settings}
    given = {name: value for name, value in vars(options).items() if name in names}
    stored = stored_settings(options.out) if options.resume and options.out is not None else None
    below = stored or runs.merge(PRESETS.get(options.preset, {}), from_file)
    imports = below.get("imports") or []
    if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
        raise ConfigError(f"imports (={imports!r}) must be list[str]")
    import_modules(imports)
    typed = parse_given(given, {**below, **given})
    if stored is not None:
        return settings_to_resume(Path(options.out), stored, {**from_file, **typed})
    return make_config(below, typed)


def parse_given(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as values, by the declarations for the chosen task and method."""
    task, method = chosen.get("task", runs.TASK), chosen.get("method", runs.METHOD)
    if task not in tasks() or method not in METHODS:
        return dict(given)  # make_config says what is wrong
    known = runs.known_settings(task, method)
    for name in given:
        if name not in known:
            raise ConfigError(f"{name} is no setting of task {task!r}; `wirebound train --help` shows whose it is")
    return {name: runs.parse_text(known[name], value) for name, value in given.items()}
