"""The model of a checkpoint: its state dict, and for each wiring the matrices that it spans."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.checkpoint.container import CheckpointError, require
from wirebound.checkpoint.stack import describe_stack
from wirebound.checkpoint.tree import check_like, decode, encode, listed
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.ops import philox
from wirebound.ops.layout import Geometry
from wirebound.wiring import Wiring, WiringError, trust


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
        finite = torch.isfinite(parameter).all()
        require(finite, f"parameter {name!r} is not finite, nothing was written: go back to the last good file")
    state = {key: encode(value, key, tensors) for key, value in model.state_dict().items()}
    stack = describe_stack(model)
    return {"state": state, "wirings": _described(model), **({} if stack is None else {"stack": stack})}


def _require_whole(model: nn.Module) -> None:
    """Refuse a model whose state dict would lack a wiring, or has no numbers."""
    held = {id(module) for module in model.modules()}
    for name, layer in sparse_layers(model):
        if id(layer.wiring) not in held:
            names = [shape.name for shape in layer.wiring.layers]
            held_by = f"whose connections are held by layer {names[0]!r}, and that is no layer of this model"
            way_out = f"give the whole model, or one that keeps {names[0]!r}"
            raise CheckpointError(f"layer {name!r} is a part of the wiring over {', '.join(names)}, {held_by}: {way_out}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        require(not tensor.is_meta, f"{name!r} is on the meta device and has no numbers: make the model on a real device")


def _way_out(wiring: Wiring) -> str:
    theta = wiring.theta.detach()
    if not bool(torch.isfinite(theta).all()):
        return "go back to the last good file, with a smaller learning rate"
    if wiring.sign_bound and bool((theta < 0).any()):
        return "take the method's step, not that of another optimiser, which leaves dormant connections in their places"
    return "the arrays of a wiring are its own; go back to the last good file"


def _described(model: nn.Module) -> list[dict[str, Any]]:
    prefixes = {id(module): name for name, module in model.named_modules() if isinstance(module, Wiring)}
    found = []
    for wiring in wirings(model):
        layers = [[layer.name, layer.n_out, layer.n_in] for layer in wiring.layers]
        found.append({"name": prefixes[id(wiring)], "budget": wiring.budget, "layers": layers})
    return found


def read_model(section: Any, tensor: Callable[[str], Tensor], model: nn.Module) -> dict[str, Any]:
    """The state dict in a checkpoint, if it is one that this model may be given."""
    model = bare(model)
    _require_whole(model)
    known = isinstance(section, dict) and set(section) - {"stack"} == {"state", "wirings"}
    require(known and isinstance(section["state"], dict), "the model must have a state and wirings")
    mine, theirs = _described(model), section["wirings"]
    fits = isinstance(theirs, list) and len(theirs) == len(mine)
    require(fits, f"it is of another model, which must have {len(mine)} wirings")
    for here, there in zip(mine, theirs, strict=True):
        if here != there:
            keys = [key for key in here if not isinstance(there, dict) or there.get(key) != here[key]]
            given = there if isinstance(there, dict) else {}
            told = "; ".join(f"{key} (={str(given.get(key))[:80]}) there, (={str(here[key])[:80]}) here" for key in keys)
            raise CheckpointError(f"it is of another model: wiring {here['name']!r} has {told or 'something more'}")
    stored = with_current_names(section["state"], model)
    _same_keys(stored, model)
    state = {key: decode(stored[key], key, tensor) for key in model.state_dict()}
    check_state(state, model)
    return state


def with_current_names(state: Any, model: nn.Module) -> Any:
    """A state dict in which the positions of each wiring are called packed_rows, as in files that call them code."""
    if not isinstance(state, dict):
        return state
    new = {key.removesuffix("packed_rows") + "code": key for key in model.state_dict() if key.endswith("packed_rows")}
    return {new.get(key, key): value for key, value in state.items()}


def _same_keys(stored: Mapping[str, Any], model: nn.Module) -> None:
    mine = model.state_dict()
    missing, unknown = [k for k in mine if k not in stored], [k for k in stored if k not in mine]
    if missing or unknown:
        raise CheckpointError(f"it is of another model: {listed(missing)} missing there, {listed(unknown)} unknown here")


def check_state(state: Any, model: nn.Module) -> None:
    """Refuse a state dict that this model may not be given: other names, types or shapes, or no valid wiring."""
    require(isinstance(state, dict), "the state of a model must be tensors by name")
    _same_keys(state, model)
    for key, mine in model.state_dict().items():
        theirs, way_out = state[key], ""
        try:
            check_like(mine, theirs, key)
        except CheckpointError as error:
            both = isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape
            if both and mine.is_floating_point() and theirs.is_floating_point():
                way_out = f"; load it into a model of that type, model.to({theirs.dtype}), and convert that"
            raise CheckpointError(f"it is of another model: {error}{way_out}") from None
    for name, _ in model.named_parameters(remove_duplicate=False):
        require(name not in state or torch.isfinite(state[name]).all(), f"parameter {name!r} must be finite")
    for name, module in model.named_modules():
        if isinstance(module, Wiring):
            prefix = f"{name}." if name else ""
            arrays = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            fault = wiring_fault(module.geometry, arrays)
            if not fault and module.fan_caps is not None and not torch.equal(arrays["fan_caps"], module.fan_caps.cpu()):
                fault = "caps on fan-in and fan-out must be those of the model here"
            require(not fault, f"wiring {name!r}: {fault}")


def wiring_fault(geometry: Geometry, arrays: Mapping[str, Tensor]) -> str | None:
    """What is wrong with the arrays of a wiring over these matrices, or None; their shapes and dtypes are known."""
    theta, index = arrays["theta"], (arrays["packed_rows"], arrays["colptr"])
    limits: Any = {name: arrays.get(name) for name in ("alive", "fan_caps", "column_signs")}
    fault = trust.wiring_fault(geometry, theta, *index, sign_bound=bool(arrays["sign_bound"]), **limits)
    if fault:
        return fault
    counts, (seed, number) = arrays["initial_counts"].tolist(), arrays["identity"].tolist()
    if sum(counts) != theta.numel() or any(not 0 <= n <= size for n, size in zip(counts, geometry.sizes, strict=True)):
        return f"initial_counts must be connections of each layer that sum up to K (={theta.numel()})"
    if seed < 0 or not 0 <= number < philox.MAX_WIRINGS:
        return f"identity (=({seed}, {number})) must be a seed >= 0 and a number below {philox.MAX_WIRINGS}"
    return None
