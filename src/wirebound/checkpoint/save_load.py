"""``save`` and ``load``: everything that training needs to go on as if it had never stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

from wirebound.checkpoint.container import Container, write_container
from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.method_state import check_method_state, steps_fault
from wirebound.checkpoint.model_state import bare, capture_model, read_model
from wirebound.checkpoint.optimizer_state import check_optimizer_state
from wirebound.checkpoint.put_back import (
    Change,
    apply_all,
    change_of_generator,
    change_of_model,
    change_of_optimizer,
    change_of_part,
)
from wirebound.checkpoint.tree import decode, difference, encode, number_fault
from wirebound.integrations.optimizer import RewiringOptimizer
from wirebound.methods.method import Method
from wirebound.methods.travel import KEY
from wirebound.nn.sparse_layer import wirings
from wirebound.version import __version__

VERSION = 1  # of the format; docs/format.md
SECTIONS = ("model", "optimizer", "method", "scheduler", "random", "extra")


class Stateful(Protocol):
    """What a scheduler is here: anything with a state dict."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says beside the state that was loaded."""

    path: Path
    sections: tuple[str, ...]  # what it holds
    steps: int | None  # steps that the method had taken
    extra: Any  # what the caller of save gave
    version: int
    writer: dict[str, str]


def save(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    method: Method | None = None,
    optimizer: optim.Optimizer | None = None,
    scheduler: Stateful | None = None,
    extra: Any = None,
    random_state: bool = True,
) -> None:
    """Write one file with everything that training needs to go on, atomically: a crash leaves the old one whole.

    Args:
        path: the file, by custom ``*.safetensors``. Its size is O(K).
        model: any model; by default the method's.
        method: its counters and ages, and its optimiser.
        optimizer: only where there is no method.
        scheduler: a torch lr scheduler, or anything with a state dict.
        extra: whatever else you need: nested dicts, lists, tuples, numbers, texts and tensors.
        random_state: keep the state of torch's global CPU generator, which dropout and shuffling use. Our own random
            numbers need none: they follow from seed and step.
    """
    if method is not None:
        if optimizer is not None and optimizer is not method.optimizer:
            raise ValueError("give method or optimizer, not both: the method brings its own")
        model, optimizer = method.model if model is None else model, method.optimizer
    tensors: dict[str, Tensor] = {}
    document: dict[str, Any] = {
        "format": "wirebound",
        "version": VERSION,
        "writer": {"wirebound": __version__, "torch": torch.__version__},
        "steps": None if method is None else method.steps,
    }
    if model is not None:
        document["model"] = capture_model(model, tensors)
    # What could not be loaded is not written: the file that was there before is worth more.
    try:
        if optimizer is not None:
            _check_optimizer(optimizer.state_dict(), optimizer, model)
        if method is not None:
            check_method_state(method.state_dict(), method)
    except CheckpointError as error:
        raise CheckpointError(f"{error}: nothing was written") from None
    for name, part in (("optimizer", optimizer), ("method", method), ("scheduler", scheduler)):
        if part is not None:
            held = part.state_dict()  # type: ignore[no-untyped-call]
            if name == "optimizer" and method is not None:
                held = {key: value for key, value in held.items() if key != KEY}  # the method is kept beside it
            state = encode(held, name, tensors)
            document[name] = {"type": type(part).__name__, "state": state}
    if random_state and optimizer is not None:
        document["random"] = encode({"torch": torch.get_rng_state()}, "random", tensors)
    if extra is not None:
        document["extra"] = encode(extra, "extra", tensors)
    write_container(Path(path), tensors, document)


def load(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    method: Method | None = None,
    optimizer: optim.Optimizer | None = None,
    scheduler: Stateful | None = None,
    random_state: bool | None = None,
) -> Checkpoint:
    """Put a checkpoint's state into the objects given, which must be made as they were for ``save``.

    Nothing in the file is executed. Everything is checked before the first object is touched, and if one of them
    fails to take its state all the same, each gets back what it had: all is loaded, or nothing. With no object given,
    the result still tells what the file holds.

    Args:
        path, model, method, optimizer, scheduler: as for ``save``; a method brings its model and optimiser.
        random_state: put torch's global CPU generator back too; by default where an optimiser is loaded.
    """
    if method is not None:
        if optimizer is not None and optimizer is not method.optimizer:
            raise ValueError("give method or optimizer, not both: the method brings its own")
        model, optimizer = method.model if model is None else model, method.optimizer
    with Container(Path(path)) as file:
        try:
            return _load(file, model, method, optimizer, scheduler, random_state)
        except CheckpointError as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from error.__cause__
        except RecursionError:
            raise CheckpointError(f"{path} cannot be loaded: its values are nested too deeply") from None


def _load(
    file: Container,
    model: nn.Module | None,
    method: Method | None,
    optimizer: optim.Optimizer | None,
    scheduler: Stateful | None,
    random_state: bool | None,
) -> Checkpoint:
    document = check_document(file.document)
    tensor = once(file)
    changes: list[Change] = []
    if model is not None:
        changes.append(change_of_model(bare(model), read_model(_section(document, "model"), tensor, model)))
    if optimizer is not None:
        stored = _state(document, "optimizer", optimizer, tensor)
        _check_optimizer(stored, optimizer, model)
        changes.append(change_of_optimizer(optimizer, stored))
    if method is not None:
        stored = _state(document, "method", method, tensor)
        check_method_state(stored, method)
        if stored["steps"] != document["steps"]:
            raise CheckpointError(f"its steps (={document['steps']}) must be those of its method (={stored['steps']})")
        changes.append(change_of_part("method", method, stored))
    if scheduler is not None:
        stored = _state(document, "scheduler", scheduler, tensor)
        _check_scheduler(stored, scheduler)
        changes.append(change_of_part("scheduler", scheduler, stored))
    if random_state or (random_state is None and optimizer is not None and "random" in document):
        changes.append(change_of_generator(_generator(_section(document, "random"), tensor)))
    extra = decode(document.get("extra"), "extra", tensor)
    apply_all(changes)
    sections = tuple(name for name in SECTIONS if name in document)
    return Checkpoint(file.path, sections, document["steps"], extra, document["version"], document["writer"])


def check_document(document: Any) -> dict[str, Any]:
    """The document, if it is one of a version that we read."""
    if not isinstance(document, dict) or document.get("format") != "wirebound":
        raise CheckpointError("its document must be one of wirebound")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"the version of its format (={str(version)[:20]!r}) must be a number >= 1")
    if version > VERSION:
        raise CheckpointError(f"its format has version {version}, we read up to {VERSION}: update wirebound")
    unknown = set(document) - {"format", "version", "writer", "steps", *SECTIONS}
    if unknown:
        raise CheckpointError(f"its document has unknown parts: {', '.join(sorted(unknown)[:5])}")
    steps, writer = document.get("steps"), document.get("writer")
    if steps is not None and (fault := steps_fault(steps)):
        raise CheckpointError(fault)
    if not isinstance(writer, dict) or not all(isinstance(value, str) for value in writer.values()):
        raise CheckpointError("writer must be texts")
    return {**document, "steps": steps}


def once(file: Container) -> Callable[[str], Tensor]:
    """Gives each tensor once, so that a short document cannot ask for a long tensor a million times."""
    given: set[str] = set()

    def tensor(name: str) -> Tensor:
        if name in given:
            raise CheckpointError(f"tensor {name[:80]!r} must be referred to once")
        given.add(name)
        return file.tensor(name)

    return tensor


def _section(document: dict[str, Any], name: str) -> Any:
    if name not in document:
        held = [section for section in SECTIONS if section in document]
        raise CheckpointError(f"it holds no {name}, only {', '.join(held) or 'nothing'}")
    return document[name]


def _state(document: dict[str, Any], name: str, part: Any, tensor: Callable[[str], Tensor]) -> Any:
    section = _section(document, name)
    if not isinstance(section, dict) or set(section) != {"type", "state"}:
        raise CheckpointError(f"{name} must have a type and a state")
    if section["type"] != type(part).__name__:
        raise CheckpointError(f"its {name} is {str(section['type'])[:40]}, here it is {type(part).__name__}")
    return decode(section["state"], name, tensor)


def _check_optimizer(state: Any, optimizer: optim.Optimizer, model: nn.Module | None) -> None:
    """Of an optimiser that carries a method, both are checked as if they had been kept by themselves."""
    thetas = [] if model is None else [wiring.theta for wiring in wirings(bare(model))]
    if not isinstance(optimizer, RewiringOptimizer):
        check_optimizer_state(state, optimizer, thetas)
        return
    check_optimizer_state(state, optimizer.method.optimizer, thetas)
    held, kind = state.get(KEY), type(optimizer.method).__name__
    if not isinstance(held, dict) or set(held) != {"method", "state"} or held["method"] != kind:
        raise CheckpointError(f"optimizer/{KEY} must be the state of a method, {kind}")
    check_method_state(held["state"], optimizer.method)


def _check_scheduler(state: Any, scheduler: Stateful) -> None:
    wrong = difference(scheduler.state_dict(), state, "scheduler")
    if not wrong and isinstance(scheduler, optim.lr_scheduler.LRScheduler):  # others may count as they like
        wrong = number_fault(state, "scheduler")
    if wrong:
        raise CheckpointError(wrong)


def _generator(section: Any, tensor: Callable[[str], Tensor]) -> Tensor:
    state = decode(section, "random", tensor)
    wrong = difference({"torch": torch.get_rng_state()}, state, "random")
    if wrong:
        raise CheckpointError(wrong)
    found: Tensor = state["torch"]
    try:
        torch.Generator().set_state(found)
    except RuntimeError as error:
        raise CheckpointError(f"random/torch must be a state of torch's generator: {str(error)[:80]}") from None
    return found
