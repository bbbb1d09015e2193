"""A network as the C trainer sees it: its settings, and its connections as the bytes that ``wb_save`` writes.

The trainer keeps what a wiring keeps, in the same order, with 16 bits for a row and its sign. The bytes are little-endian:

    head       magic, generation, fingerprint of the settings, steps, size of the arrays: uint32 each
    arrays     biases, their momentum, θ, its momentum, column starts, rows (``device/wirebound_device.c``, ``arrange``)
    tail       CRC-32 of head and arrays, and the word that says that all of it was written
"""

import itertools
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wirebound.export.layers import Layer, require
from wirebound.export.network import read_network
from wirebound.nn.sparse_layer import sparse_layers, wirings
from wirebound.ops.layout import signs_of
from wirebound.wiring import Wiring

NUMBERS = ("float", "fixed")
LOSSES = ("cross-entropy", "mean-square")
NEWBORNS = ("share", "uniform")
THETA_BITS = 14  # WB_THETA_BITS
_MAGIC, _COMPLETE, _HEAD, _TAIL = 0x31444257, 0x4B4F4257, 20, 8
_MOST_LAYERS, _MOST_COUNT, _MOST_ROWS, _MOST_PLACES = 8, 65535, 32767, 0xFFFFFFFF
_NEGATIVE = 0x8000


class DeviceStateError(ValueError):
    """Bytes are no complete state of this network."""


@dataclass(frozen=True)
class Rates:
    """η, α, g and μ of a trainer at the start."""

    lr: float = 0.05
    l1: float = 1e-4
    noise: float = 0.0
    momentum: float = 0.0


@dataclass(frozen=True)
class DeviceNetwork:
    """The settings of a trainer: ``wb_config``."""

    sizes: tuple[int, ...]  # inputs, then the outputs of each layer
    counts: tuple[int, ...]  # connections of each layer at the start
    scales: tuple[float, ...]  # of the first weights of each layer
    seed: int = 0
    per_layer: bool = False
    newborns: str = "share"
    loss: str = "cross-entropy"
    bias: bool = False
    rewire_every: int = 1
    rates: Rates = field(default_factory=Rates)
    numbers: str = "float"
    pixels: float | None = 1 / 255  # what a byte of the input stands for; None: inputs are numbers
    frozen: tuple[int, ...] = ()  # layers

    def __post_init__(self) -> None:
        for name, value, choices in (("numbers", self.numbers, NUMBERS), ("loss", self.loss, LOSSES), ("newborns", self.newborns, NEWBORNS)):
            require(value in choices, f"{name} (={value!r}) must be one of {', '.join(choices)}")
        told = f"a network of {len(self.counts)} layers and {self.connections:,} connections"
        require(len(self.counts) <= _MOST_LAYERS, f"{told} is too large for a chip: at most {_MOST_LAYERS} layers")
        require(0 < self.connections <= _MOST_COUNT, f"{told} is too large for a chip: at most {_MOST_COUNT:,} connections")
        require(self.columns <= _MOST_COUNT, f"layers with {self.columns:,} inputs in all are too large for a chip: at most {_MOST_COUNT:,}")
        require(max(self.sizes[1:]) <= _MOST_ROWS, f"a layer of {max(self.sizes[1:]):,} outputs is too large for a chip: at most {_MOST_ROWS:,}")
        require(self.possible <= _MOST_PLACES, f"{self.possible:,} possible connections are too many for a chip: at most {_MOST_PLACES:,}")
        for name, value in vars(self.rates).items():
            require(math.isfinite(value) and value >= 0, f"{name} (={value}) must be a finite number >= 0")
            require(self.numbers == "float" or value < 1, f"{name} (={value}) must be below 1 in fixed point")
        require(self.rates.momentum < 1, f"momentum (={self.rates.momentum}) must be below 1")
        require(self.rewire_every >= 1, f"rewire_every (={self.rewire_every}) must be at least 1")
        for layer in self.frozen:
            require(0 <= layer < len(self.counts), f"freeze (={layer}) must name a layer, 0 to {len(self.counts) - 1}")

    @property
    def connections(self) -> int:
        """K."""
        return sum(self.counts)

    @property
    def columns(self) -> int:
        return sum(self.sizes[:-1])

    @property
    def neurons(self) -> int:
        return sum(self.sizes[1:])

    @property
    def possible(self) -> int:
        return sum(a * b for a, b in itertools.pairwise(self.sizes))

    @property
    def fixed(self) -> bool:
        return self.numbers == "fixed"

    def arrays(self) -> list[tuple[str, np.dtype[Any], int]]:
        """What a state holds, in its order: name, type, length."""
        number, theta, buffer = ("<i4", "<u2", "<i2") if self.fixed else ("<f4", "<f4", "<f4")
        moves, layout = self.rates.momentum > 0, [("theta", theta, self.connections)]
        if self.bias:
            layout = [("bias", number, self.neurons), *([("bias_buffer", number, self.neurons)] if moves else []), *layout]
        layout += [("buffer", buffer, self.connections)] if moves else []
        layout += [("start", "<u2", self.columns + 1), ("row", "<u2", self.connections)]
        return [(name, np.dtype(kind), length) for name, kind, length in layout]

    @property
    def state_bytes(self) -> int:
        return _HEAD + _TAIL + sum(kind.itemsize * length for _, kind, length in self.arrays())

    @property
    def memory(self) -> int:
        """``wb_memory_needed``: the arrays, and activations or the marks of a sample, whichever are more."""
        places = [a * b for a, b in itertools.pairwise(self.sizes)]
        marks = max((min(n, 2 * self.connections) for n in [*places, sum(places)] if n // 3 < self.connections), default=0)
        return self.state_bytes - _HEAD - _TAIL + max(4 * self.neurons, (marks + 31) // 32 * 4)

    @property
    def fingerprint(self) -> int:
        switches = self.per_layer | self.bias << 4 | (self.rates.momentum > 0) << 8
        form = THETA_BITS if self.fixed else 32
        head = struct.pack("<4HQ", form, self.sizes[0], len(self.counts), switches, self.seed)
        pairs = (struct.pack("<2H", *pair) for pair in zip(self.sizes[1:], self.counts, strict=True))
        return zlib.crc32(b"".join([head, *pairs]))


def read_trained(model: nn.Module, **settings: Any) -> DeviceNetwork:
    """The settings of a sparse perceptron; the rest are those of ``DeviceNetwork``. Refused with what does not fit."""
    read = read_network(model)
    layers = read.layers
    normed = [name for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    require(not normed, f"layer {normed[:1]} is a batch norm, which a chip does not train: make the model without it")
    for number, layer in enumerate(layers):
        is_linear = type(layer) is Layer
        require(is_linear, f"layer {layer.name!r} is no linear layer: a chip trains perceptrons")
        wanted = ("relu",) if number + 1 < len(layers) else ("linear",)
        told = f"layer {layer.name!r} is followed by {layer.activation}: a chip trains perceptrons with ReLU between the layers"
        require(layer.activation in wanted, told)
    sparse, found = [layer for _, layer in sparse_layers(model)], wirings(model)
    require(len(sparse) == len(layers), "all layers must be sparse: a chip has no memory for matrices in full")
    require(len(found) in (1, len(layers)), f"a model with {len(found)} budgets must have one in all, or one for each layer")
    for index, wiring in enumerate(found):
        require(not wiring.constrained, "caps on the fan-in and fan-out and Dale's law are not kept on a chip: train without them")
        require(wiring.index == index, f"budget {index} of the model has number {wiring.index}: make the model by one sparsify")
        require(wiring.seed == found[0].seed, "all budgets of a model must have one seed")
    biases = [layer.bias is not None for layer in sparse]
    require(len(set(biases)) == 1, "either all layers have biases or none")
    counts = tuple(int(n) for wiring in found for n in wiring.initial_counts.tolist())
    sizes = tuple(read.sizes)
    given = {"scales": (0.0,) * len(counts), **settings}
    return DeviceNetwork(sizes, counts, seed=found[0].seed, per_layer=len(found) > 1, bias=biases[0], **given)


def first_scales(sizes: Sequence[int], counts: Sequence[int], init: str = "dense-fan-in", gain: float = 1.0) -> tuple[float, ...]:
    """The scale of each layer's first weights, as ``wiring/draw.py`` has it."""
    pairs = zip(itertools.pairwise(sizes), counts, strict=True)
    return tuple(gain / math.sqrt(n_in if init == "dense-fan-in" else max(1.0, n / n_out)) for (n_in, n_out), n in pairs)


@torch.no_grad()
def encode(network: DeviceNetwork, model: nn.Module, steps: int = 0) -> bytes:
    """The connections and biases of a model as a state of the trainer; momentum starts at 0."""
    found = wirings(model)
    values: dict[str, np.ndarray] = {}
    thetas, rows, starts, before = [], [], [], 0
    for wiring in found:
        own = wiring.theta.detach()
        negative = (own < 0) if not wiring.sign_bound else (signs_of(wiring.packed_rows, torch.float32) < 0)
        packed = (wiring.packed_rows & 0x7FFFFFFF).numpy().astype(np.uint16)
        rows.append(np.where(negative.numpy(), packed | _NEGATIVE, packed))
        thetas.append(own.abs().numpy())
        starts.append(wiring.colptr[:-1].numpy() + before)
        before += wiring.budget
    theta = np.concatenate(thetas)
    if network.fixed:
        most = ((1 << 16) - 2) / (1 << THETA_BITS)
        told = f"the largest weight (={theta.max():.3g}) must be at most {most:.4g} in fixed point: use numbers='float'"
        require(theta.max() <= most, told)
        theta = np.rint(theta * (1 << THETA_BITS))
    values |= {"theta": theta, "row": np.concatenate(rows), "start": np.concatenate([*starts, [before]])}
    if network.bias:
        bias = np.concatenate([_bias(layer.bias) for _, layer in sparse_layers(model)])
        values["bias"] = np.clip(np.rint(bias * (1 << 26)), -(1 << 31) + 1, (1 << 31) - 1) if network.fixed else bias
    parts = [values.get(name, np.zeros(length)).astype(kind).tobytes() for name, kind, length in network.arrays()]
    arrays = b"".join(parts)
    head = struct.pack("<5I", _MAGIC, 0, network.fingerprint, steps, len(arrays))
    return head + arrays + struct.pack("<2I", zlib.crc32(head + arrays), _COMPLETE)


def _bias(bias: Tensor | None) -> np.ndarray:
    assert bias is not None
    return bias.detach().numpy()


def decode(network: DeviceNetwork, state: bytes) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of a state, numbers as floats, and the steps that were taken."""
    head = struct.unpack_from("<5I", state) if len(state) == network.state_bytes else (0,) * 5
    crc, complete = struct.unpack("<2I", state[-_TAIL:])
    if head[0] != _MAGIC or complete != _COMPLETE or crc != zlib.crc32(state[:-_TAIL]):
        raise DeviceStateError(f"these {len(state):,} bytes are no complete state of {network.state_bytes:,} bytes")
    if head[2] != network.fingerprint:
        raise DeviceStateError("the state is that of another network, seed or number format")
    found, at = {}, _HEAD
    units = {"theta": THETA_BITS, "bias": 26, "buffer": 10, "bias_buffer": 22} if network.fixed else {}
    for name, kind, length in network.arrays():
        array = np.frombuffer(state, kind, length, at)
        at += kind.itemsize * length
        found[name] = array * np.float32(2.0 ** -units[name]) if name in units else array
    return found, head[3]


@torch.no_grad()
def load_into(network: DeviceNetwork, state: bytes, model: nn.Module) -> int:
    """Give a model the connections, weights and biases of a state; the steps that were taken."""
    arrays, steps = decode(network, state)
    start, row = arrays["start"].astype(np.int64), arrays["row"].astype(np.int64)
    packed = np.where(row & _NEGATIVE, (row & ~_NEGATIVE) - (1 << 31), row).astype(np.int32)
    column = at = 0
    for wiring in wirings(model):
        wiring.bind_signs_()
        columns, end = wiring.colptr.numel() - 1, at + wiring.budget
        _fill(wiring, start[column : column + columns + 1] - at, packed[at:end], arrays["theta"][at:end])
        column, at = column + columns, end
    first = 0
    for (_, layer), size in zip(sparse_layers(model), network.sizes[1:], strict=True):
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(arrays["bias"][first : first + size].astype(np.float32)))
            first += size
    return steps


def _fill(wiring: Wiring, colptr: np.ndarray, packed_rows: np.ndarray, theta: np.ndarray) -> None:
    wiring.changing()
    wiring.colptr.copy_(torch.from_numpy(colptr))
    wiring.packed_rows.copy_(torch.from_numpy(packed_rows))
    wiring.theta.copy_(torch.from_numpy(theta.astype(np.float32)))
    wiring.starts_at([int(wiring.colptr[column]) for column in wiring.geometry.column_start])
    wiring.check()
