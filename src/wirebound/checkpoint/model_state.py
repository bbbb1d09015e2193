"""The model of a checkpoint: its state dict, and for each wiring the matrices that it spans."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.plain_modules import PLAIN, WEIGHTED, settings_of
from wirebound.checkpoint.tree import decode, difference, encode
from wirebound.checkpoint.wiring_state import ARRAYS, OPTIONAL, wiring_fault
from wirebound.nn.sparse_layer import SparseLayer, sparse_layers, wirings
from wirebound.nn.stack import SparseSequential
from wirebound.wiring import Wiring, WiringError


def bare(model: nn.Module) -> nn.Module:
    """The model without the wrappers of data-parallel training and of ``torch.compile``."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def capture_model(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The model's section of a checkpoint; refuses a model that is not worth keeping."""
    model = bare(model)
    _require_whole(model)
    for wiring in wirings(model):
        try:
            wiring.check()
        except WiringError as error:
            raise WiringError(f"{error}; nothing was written: {_way_out(wiring)}") from None
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise CheckpointError(f"parameter {name!r} is not finite: nothing was written; go back to the last good file")
    state = {key: encode(value, key, tensors) for key, value in model.state_dict().items()}
    section: dict[str, Any] = {"state": state, "wirings": _described(model)}
    stack = _plain_stack(model)
    return section if stack is None else {**section, "stack": stack}


def _require_whole(model: nn.Module) -> None:
    """Refuse a model whose state dict would lack a wiring, or has no numbers."""
    held = {id(module) for module in model.modules()}
    for name, layer in sparse_layers(model):
        wiring = layer.wiring
        if id(wiring) not in held:
            names = [shape.name for shape in wiring.layers]
            raise CheckpointError(
                f"layer {name!r} is a part of the wiring over {', '.join(names)}, whose connections are held by layer "
                f"{names[0]!r}, and that is no layer of this model: give the whole model, or one that keeps {names[0]!r}"
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise CheckpointError(f"{name!r} is on the meta device and has no numbers: make the model on a real device")


def _way_out(wiring: Wiring) -> str:
    theta = wiring.theta.detach()
    if not bool(torch.isfinite(theta).all()):
        return "go back to the last good file, with a smaller learning rate"
    if wiring.sign_bound and bool((theta < 0).any()):
        return "take the method's step instead of optimizer.step(), which leaves dormant connections in their places"
    return "the arrays of a wiring are its own; go back to the last good file"


def _plain_stack(model: nn.Module) -> list[dict[str, Any]] | None:
    """The modules of a plain stack in their order, so that a file alone says which network it holds; else None."""
    if type(model) not in (nn.Sequential, SparseSequential):
        return None
    found = {id(wiring): number for number, wiring in enumerate(wirings(model))}
    stack: list[dict[str, Any]] = []
    modules = list(model._modules.items())
    if len({id(module) for _, module in modules}) < len(modules):
        return None  # a module used twice
    sparse = [(id(module.wiring), module.part) for _, module in modules if isinstance(module, SparseLayer)]
    if len(set(sparse)) < len(sparse):
        return None  # two modules with the same connections
    for name, module in modules:
        kind = None if module is None else PLAIN.get(type(module))
        settings = None if module is None or kind is None else settings_of(module)
        if settings is None or (isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1)):
            return None
        item: dict[str, Any] = {"name": name, "type": kind, **({"settings": settings} if settings else {})}
        if module is not None and kind in WEIGHTED:
            item["bias"] = module.bias is not None
        if isinstance(module, SparseLayer):
            item |= {"wiring": found[id(module.wiring)], "part": module.part}
        stack.append(item)
    return stack


def _described(model: nn.Module) -> list[dict[str, Any]]:
    prefixes = {id(module): name for name, module in model.named_modules() if isinstance(module, Wiring)}
    return [
        {
            "name": prefixes[id(wiring)],
            "budget": wiring.budget,
            "layers": [[layer.name, layer.n_out, layer.n_in] for layer in wiring.layers],
        }
        for wiring in wirings(model)
    ]


def read_model(section: Any, tensor: Any, model: nn.Module) -> dict[str, Any]:
    """The state dict in a checkpoint, if it is one that this model may be given."""
    model = bare(model)
    _require_whole(model)
    known = isinstance(section, dict) and set(section) - {"stack"} == {"state", "wirings"}
    if not known or not isinstance(section["state"], dict):
        raise CheckpointError("the model must have a state and wirings")
    _same_shapes(section["wirings"], model)
    stored = section["state"]
    _same_keys(stored, model)
    state = {key: decode(stored[key], key, tensor) for key in model.state_dict()}
    check_state(state, model)
    return state


def _same_keys(stored: dict[str, Any], model: nn.Module) -> None:
    mine = model.state_dict()
    missing, unknown = [k for k in mine if k not in stored], [k for k in stored if k not in mine]
    if missing or unknown:
        raise CheckpointError(
            f"it is of another model: {_some(missing)} missing there, {_some(unknown)} unknown here"
        )


def check_state(state: Any, model: nn.Module) -> None:
    """Refuse a state dict that this model may not be given: other names, types or shapes, or no valid wiring."""
    if not isinstance(state, dict):
        raise CheckpointError("the state of a model must be tensors by name")
    _same_keys(state, model)
    for key, value in model.state_dict().items():
        wrong = difference(value, state[key], key)
        if wrong:
            raise CheckpointError(f"it is of another model: {wrong}{_other_precision(value, state[key])}")
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name in state and not bool(torch.isfinite(state[name]).all()):
            raise CheckpointError(f"parameter {name!r} must be finite")
    for name, module in model.named_modules():
        if isinstance(module, Wiring):
            prefix = f"{name}." if name else ""
            optional = [array for array in OPTIONAL if prefix + array in state]
            fault = wiring_fault(module.geometry, {array: state[prefix + array] for array in (*ARRAYS, *optional)})
            if not fault and module.fan_caps is not None and not torch.equal(
                state[prefix + "fan_caps"], module.fan_caps.cpu()
            ):
                fault = "caps on fan-in and fan-out must be those of the model here"
            if fault:
                raise CheckpointError(f"wiring {name!r}: {fault}")


def _other_precision(mine: Any, theirs: Any) -> str:
    """What to do where only the precision differs."""
    both = isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape
    if both and mine.is_floating_point() and theirs.is_floating_point():
        return f"; load it into a model of that type, model.to({theirs.dtype}), and convert that"
    return ""


def _same_shapes(stored: Any, model: nn.Module) -> None:
    mine = _described(model)
    if not isinstance(stored, list) or len(stored) != len(mine):
        raise CheckpointError(f"it is of another model, which must have {len(mine)} wirings")
    for here, there in zip(mine, stored, strict=True):
        if not isinstance(there, dict) or set(there) != set(here) or not isinstance(there["layers"], list):
            raise CheckpointError("each wiring must have a name, a budget and layers")
        if (there["name"], len(there["layers"])) != (here["name"], len(here["layers"])):
            raise CheckpointError(
                f"it is of another model: wiring {there['name']!r} there spans {len(there['layers'])} layers, "
                f"{here['name']!r} here {len(here['layers'])}"
            )
        for layer, other in zip(here["layers"], there["layers"], strict=True):
            if other != layer:
                raise CheckpointError(
                    f"it is of another model: a layer (name, outputs, inputs) is {str(other)[:80]} there, {layer} here"
                )
        if there["budget"] != here["budget"]:
            raise CheckpointError(
                f"it is of another model: budget (={str(there['budget'])[:30]}) there, {here['budget']} here"
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "") if names else "nothing"
