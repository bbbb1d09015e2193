"""Which network a file holds, if it is a plain stack: enough to build it anew from the file alone.

Of other models a file keeps the tensors, and who loads it must build the model; see ``docs/format.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.checkpoint.container import Container
from wirebound.checkpoint.errors import CheckpointError
from wirebound.checkpoint.layout import Entry
from wirebound.checkpoint.plain_modules import SPARSE, TYPES, channels_of, make_dense, read_settings, require_bias
from wirebound.checkpoint.save_load import check_document, load
from wirebound.nn.linear import SparseLinear
from wirebound.nn.stack import with_runs
from wirebound.wiring import LayerShape, Wiring

# A layer may have many more outputs than a file holds numbers, because rows without connections take no bytes. What
# takes memory for each of them is made for so many: this number of all layers, or this number for each that is held.
FREE_OUTPUTS, OUTPUTS_PER_NUMBER = 1 << 20, 64


def most_outputs(held: int) -> int:
    """Outputs of all layers of a model of ``held`` weights and biases for which arrays may be made."""
    return max(FREE_OUTPUTS, OUTPUTS_PER_NUMBER * held)


def holds_stack(path: Path) -> bool:
    """Whether a file says which network it holds."""
    with Container(path) as file:
        model = check_document(file.document).get("model")
    return isinstance(model, dict) and "stack" in model


def load_model(path: Path) -> nn.Module:
    """The model in a file, built from what the file says about it. Nothing in the file is executed.

    Raises ``CheckpointError`` for a file whose model is not a plain stack of modules that a file can name.
    """
    # fork_rng: torch's layers draw weights that are loaded over at once, and the generator is not ours to move.
    with Container(path) as file, torch.random.fork_rng(devices=[]):
        try:
            model = _build(check_document(file.document), file)
        except CheckpointError as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from None
    load(path, model=model)
    return model


def _build(document: dict[str, Any], file: Container) -> nn.Module:
    section = document.get("model")
    if not isinstance(section, dict):
        raise CheckpointError("it holds no model")
    stack = section.get("stack")
    if stack is None:
        raise CheckpointError(
            "it does not say which network it holds, because that is no plain stack of layers: build the model in Python "
            "and use wb.load(path, model=model), then the functions of wirebound.export"
        )
    if not isinstance(stack, list) or not all(isinstance(item, dict) for item in stack):
        raise CheckpointError("its stack must be a list of modules")
    wirings = [_wiring(item, file) for item in _list(section.get("wirings"), "wirings")]
    taken: set[tuple[int, int]] = set()  # (wiring, part) of the layers so far
    modules: dict[str, nn.Module] = {}
    for item in stack:
        name, kind = item.get("name"), item.get("type")
        if not isinstance(name, str) or not name or "." in name or name in modules:
            raise CheckpointError(f"the name of a module (={str(name)[:40]!r}) must be a text of its own without dots")
        if not isinstance(kind, str) or kind not in TYPES:
            raise CheckpointError(f"the type of module {name!r} (={str(kind)[:40]!r}) must be one of {sorted(TYPES)}")
        modules[name] = _module(name, kind, item, wirings, taken, file.entries)
    model = nn.Sequential()
    for name, module in modules.items():
        model.add_module(name, module)
    return with_runs(model)


def _module(
    name: str,
    kind: str,
    item: dict[str, Any],
    wirings: list[Wiring],
    taken: set[tuple[int, int]],
    entries: Mapping[str, Entry],
) -> nn.Module:
    bias, settings = bool(item.get("bias")), read_settings(name, kind, item)
    if kind not in SPARSE:
        return make_dense(name, kind, bias, settings, entries)
    number, part = item.get("wiring"), item.get("part")
    if type(number) is not int or not 0 <= number < len(wirings):
        raise CheckpointError(f"the wiring of layer {name!r} (={str(number)[:20]}) must be in [0, {len(wirings)})")
    wiring = wirings[number]
    if type(part) is not int or not 0 <= part < len(wiring.layers):
        raise CheckpointError(f"the part of layer {name!r} (={str(part)[:20]}) must be in [0, {len(wiring.layers)})")
    shape = wiring.layers[part]
    require_bias(name, bias, shape.n_out, entries)
    if (number, part) in taken:
        raise CheckpointError(f"layer {name!r} must have a part of its wiring for itself")
    owner = all(number != other for other, _ in taken)
    taken.add((number, part))
    if kind == "sparse-linear":
        return SparseLinear(shape.n_in, shape.n_out, bias, wiring=wiring, part=part, owner=owner)
    make: Any = TYPES[kind]
    channels = channels_of(name, shape, settings)
    try:
        conv: nn.Module = make(channels, shape.n_out, bias=bias, wiring=wiring, part=part, owner=owner, **settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the settings of module {name!r} do not fit: {str(error)[:160]}") from None
    return conv


def _wiring(item: Any, file: Container) -> Wiring:
    """A wiring of this shape. No array is longer here than it is in the file, whatever the document says."""
    if not isinstance(item, dict):
        raise CheckpointError("each wiring must have a name, a budget and layers")
    name, layers = str(item.get("name")), []
    for layer in _list(item.get("layers"), "layers"):
        if not isinstance(layer, list) or len(layer) != 3 or not all(type(n) is int and n > 0 for n in layer[1:]):
            raise CheckpointError(f"a layer of wiring {name[:40]!r} must be a name and two sizes")
        layers.append(LayerShape(str(layer[0]), layer[1], layer[2]))
    entries = file.entries
    theta, colptr = entries.get(f"{name}.theta"), entries.get(f"{name}.colptr")
    if not layers or theta is None or colptr is None or len(theta.shape) != 1:
        raise CheckpointError(f"wiring {name[:40]!r} must have layers and its arrays")
    if colptr.shape != (sum(layer.n_in for layer in layers) + 1,) or not theta.dtype.is_floating_point:
        raise CheckpointError(f"the arrays of wiring {name[:40]!r} must fit its layers")
    outputs = sum(layer.n_out for layer in layers)
    if f"{name}.fan_caps" in entries and outputs > most_outputs(theta.shape[0]):  # caps are checked neuron by neuron
        raise CheckpointError(
            f"wiring {name[:40]!r} has caps on {outputs:,} outputs but only {theta.shape[0]:,} connections: at most "
            f"{most_outputs(theta.shape[0]):,} outputs can be checked"
        )
    left, counts = theta.shape[0], []
    for layer in layers:  # any counts of the right sum: the file's own are loaded over them
        counts.append(min(left, layer.possible))
        left -= counts[-1]
    if left:
        raise CheckpointError(f"wiring {name[:40]!r} holds more connections than its layers can")
    wiring = Wiring(layers, counts, dtype=theta.dtype)
    # What only some wirings have; whether it is right is checked when the file is loaded.
    shapes = {"fan_caps": (2, len(layers)), "column_signs": (colptr.shape[0] - 1,), "alive": theta.shape}
    dtypes = {"fan_caps": torch.int64, "column_signs": torch.int8, "alive": torch.bool}
    for array, shape in shapes.items():
        entry = entries.get(f"{name}.{array}")
        if entry is not None:
            if entry.shape != shape or entry.dtype is not dtypes[array]:
                raise CheckpointError(f"{array} of wiring {name[:40]!r} must be {dtypes[array]} of shape {shape}")
            setattr(wiring, array, file.tensor(f"{name}.{array}"))
    return wiring


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise CheckpointError(f"{name} must be a list")
    return value
