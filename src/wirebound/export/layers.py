"""A network as numbers: the connections of each layer, sorted by row, with biases and activations.

A convolution is its kernel as a matrix and a window; one dimension is two of which the first has size 1.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from wirebound.ops import ConvWindow

ANY = 0  # channels of a window that takes them one by one, however many there are
Shape = tuple[int, ...]  # of one example: (features,), (channels, length) or (channels, height, width)


class ExportError(ValueError):
    """A model cannot be written in a format; the message says why and what to do."""


class NotAChain(ExportError):
    """A model is not a chain of layers that are known here; the message names the first that is not."""

    def __init__(self, reason: str) -> None:
        dense = "write ONNX with dense weights by to_onnx(model, path, example=batch), or take wb.to_dense(model)"
        super().__init__(f"{reason}. Only a chain of layers can be written, see docs/export.md: rewrite forward(); or {dense}")
        self.reason = reason


def require(holds: object, message: str, error: type[ExportError] = ExportError) -> None:
    if not holds:
        raise error(message)


def load_extra(package: str, extra: str) -> ModuleType:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        how = f'pip install "wirebound[{extra}]"'
        raise ExportError(f"this export needs the package {package}, which cannot be imported ({error}): {how}") from error


@dataclass(frozen=True)
class Activation:
    """A function that may follow a layer, of each number alone or of all that a layer gives (``OF_ALL``)."""

    numpy: Callable[[np.ndarray, float], np.ndarray]
    c: str  # of ``sum``, with {alpha}; of ``y[i]``, ``most`` (the largest) and ``total`` (of exp(y - most)) for OF_ALL
    # ONNX nodes: operator and inputs ("y" comes in, "$3" is what node 3 gave, numbers are constants, alpha an attribute).
    onnx: str = ""


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return np.asarray(erf(x))


def _log_softmax(y: np.ndarray) -> np.ndarray:
    y = y - y.max(-1, keepdims=True)
    return np.asarray(y - np.log(np.exp(y).sum(-1, keepdims=True)))


OF_ALL = ("softmax", "log-softmax")
_ROOT = 0.7978845608028654  # √(2/π)

ACTIVATIONS: dict[str, Activation] = {
    "linear": Activation(lambda y, a: y, "sum"),
    "relu": Activation(lambda y, a: np.maximum(y, 0), "sum > 0.0f ? sum : 0.0f", "Relu y"),
    "tanh": Activation(lambda y, a: np.tanh(y), "tanhf(sum)", "Tanh y"),
    "sigmoid": Activation(lambda y, a: 1 / (1 + np.exp(-y)), "1.0f / (1.0f + expf(-sum))", "Sigmoid y"),
    "gelu": Activation(
        lambda y, a: 0.5 * y * (1 + _erf(y / np.sqrt(2).astype(y.dtype))),
        "0.5f * sum * (1.0f + erff(sum * 0.707106781f))",
        "Mul y 0.7071067811865476; Erf $0; Add $1 1; Mul y 0.5; Mul $2 $3",
    ),
    "gelu-tanh": Activation(
        lambda y, a: 0.5 * y * (1 + np.tanh(y.dtype.type(_ROOT) * (y + y.dtype.type(0.044715) * y * y * y))),
        "0.5f * sum * (1.0f + tanhf(0.797884561f * (sum + 0.044715f * sum * sum * sum)))",
        f"Mul y y; Mul $0 0.044715; Add $1 1; Mul y $2; Mul $3 {_ROOT}; Tanh $4; Add $5 1; Mul y 0.5; Mul $6 $7",
    ),
    "silu": Activation(lambda y, a: y / (1 + np.exp(-y)), "sum / (1.0f + expf(-sum))", "Sigmoid y; Mul y $0"),
    "relu6": Activation(lambda y, a: np.clip(y, 0, 6), "sum > 0.0f ? (sum < 6.0f ? sum : 6.0f) : 0.0f", "Clip y 0 6"),
    "leaky-relu": Activation(
        lambda y, a: np.where(y > 0, y, y.dtype.type(a) * y), "sum > 0.0f ? sum : {alpha} * sum", "LeakyRelu y alpha"
    ),
    "elu": Activation(
        lambda y, a: np.where(y > 0, y, y.dtype.type(a) * np.expm1(np.minimum(y, 0))),
        "sum > 0.0f ? sum : {alpha} * expm1f(sum)", "Elu y alpha",
    ),
    "softmax": Activation(lambda y, a: np.exp(_log_softmax(y)), "expf(y[i] - most) / total", "Softmax y"),
    "log-softmax": Activation(lambda y, a: _log_softmax(y), "y[i] - most - logf(total)", "LogSoftmax y"),
}


class _Activated:
    activation: str
    alpha: float  # the number of an activation that has one

    def activate(self, y: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[self.activation].numpy(y, self.alpha)


class _Windowed:
    """What looks at windows of its input."""

    name: str
    dimensions: int  # 1 or 2
    window: ConvWindow | None  # None: all places of a channel
    size: tuple[int, int] | None  # height and width of the input, where they are known

    @property
    def known_size(self) -> tuple[int, int]:
        if self.size is None:
            example = ("(40, 100) for 40 channels of length 100", "(1, 28, 28)")[self.dimensions - 1]
            how = f"give input_shape, the shape of one example, such as {example}"
            raise ExportError(f"layer {self.name!r} looks at windows of its input, whose size this format must know: {how}")
        return self.size

    def size_of(self, shape: Shape) -> tuple[int, int]:
        """Height and width of an input of this shape, if the window can take it."""
        wanted = ("(channels, length)", "(channels, height, width)")[self.dimensions - 1]
        told = f"takes inputs of shape {wanted}, it is given {shape}: check input_shape"
        require(len(shape) == self.dimensions + 1, f"layer {self.name!r} {told}")
        size, window = (1, *shape[1:])[-2:], self.window
        if window is not None:
            channels = f"layer {self.name!r} has {window.in_channels} input channels, it is given {shape[0]}"
            require(window.in_channels in (ANY, shape[0]), channels)
            fits = min(window.out_size(size[0], 0), window.out_size(size[1], 1)) >= 1
            require(fits, f"the window of layer {self.name!r} must fit into its input, of height and width {size}")
        return size[0], size[1]

    @property
    def known_window(self) -> ConvWindow:
        return self.window or ConvWindow(ANY, ANY, self.known_size, (1, 1), (0, 0), (0, 0), (1, 1), 1)

    @property
    def out_size(self) -> tuple[int, int]:
        (height, width), window = self.known_size, self.known_window
        return window.out_size(height, 0), window.out_size(width, 1)


@dataclass(frozen=True, eq=False)
class Layer(_Activated):
    """y = activation(W x + b), W as a list of connections sorted by row, then column."""

    name: str
    n_out: int
    n_in: int
    rows: np.ndarray  # int64, which output
    columns: np.ndarray  # int64, which input
    weights: np.ndarray  # float32; a newborn's is ±0
    bias: np.ndarray | None  # float32
    activation: str
    alpha: float = 0.0

    def __len__(self) -> int:
        return len(self.weights)

    def matrix(self) -> Any:
        """W as a ``scipy.sparse.csr_array`` with every connection in it, newborns of weight 0 too."""
        indptr = np.searchsorted(self.rows, np.arange(self.n_out + 1)).astype(np.int32)
        parts = (self.weights, self.columns.astype(np.int32), indptr)
        return load_extra("scipy.sparse", "lab").csr_array(parts, shape=(self.n_out, self.n_in))

    def dense(self) -> np.ndarray:
        """W in full, for formats that know nothing else."""
        full = np.zeros((self.n_out, self.n_in), dtype=np.float32)
        full[self.rows, self.columns] = self.weights
        return full

    def sized(self, shape: Shape) -> tuple[Layer, Shape]:
        """The layer for an input of this shape, and the shape of its output."""
        given = math.prod(shape)
        require(given == self.n_in, f"layer {self.name!r} has {self.n_in} inputs, it is given {given}")
        return self, (self.n_out,)

    def forward(self, x: Any) -> np.ndarray:
        """Outputs for inputs [examples, features], dense or a SciPy matrix in CSR format, in the precision of the inputs."""
        matrix = self.matrix().astype(x.dtype)
        y = (matrix @ np.ascontiguousarray(x.T)).T if isinstance(x, np.ndarray) else (x @ matrix.T).toarray()
        return self.activate(y if self.bias is None else y + self.bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv(_Windowed, Layer):
    """A convolution: row o of W is the kernel of output channel o, its columns are (channel, place) (``ConvWindow``)."""

    window: ConvWindow
    dimensions: int
    size: tuple[int, int] | None = None

    @property
    def kernel_shape(self) -> Shape:
        """Of the dense kernel, as torch has it."""
        return (self.n_out, self.window.group_channels, *self.window.kernel[2 - self.dimensions :])

    def sized(self, shape: Shape) -> tuple[Conv, Shape]:
        layer = dataclasses.replace(self, size=self.size_of(shape))
        return layer, (self.n_out, *layer.out_size[2 - self.dimensions :])

    @property
    def channels(self) -> np.ndarray:
        """The input channel of each connection."""
        group = self.rows // (self.n_out // self.window.groups)
        return self.columns // math.prod(self.window.kernel) + group * self.window.group_channels

    def unrolled(self) -> Layer:
        """The same as a linear layer on flat inputs, every connection once for each place of the output."""
        (height, width), (out_height, out_width), window = self.known_size, self.out_size, self.window
        places = np.arange(out_height * out_width)
        ky, kx = np.divmod(self.columns % math.prod(window.kernel), window.kernel[1])
        oy, ox = np.divmod(places, out_width)
        iy = oy * window.stride[0] - window.before[0] + (ky * window.dilation[0])[:, None]
        ix = ox * window.stride[1] - window.before[1] + (kx * window.dilation[1])[:, None]
        inside = (iy >= 0) & (iy < height) & (ix >= 0) & (ix < width)
        rows = (self.rows[:, None] * len(places) + places)[inside]
        columns = ((self.channels[:, None] * height + iy) * width + ix)[inside]
        weights = np.broadcast_to(self.weights[:, None], inside.shape)[inside]
        order = np.lexsort((columns, rows))
        bias = None if self.bias is None else np.repeat(self.bias, len(places))
        n_out, n_in = self.n_out * len(places), window.in_channels * height * width
        connections = (rows[order], columns[order], weights[order])
        return Layer(self.name, n_out, n_in, *connections, bias, self.activation, self.alpha)

    def forward(self, x: np.ndarray) -> np.ndarray:
        return self.unrolled().forward(x)


@dataclass(frozen=True, eq=False)
class Pool(_Windowed, _Activated):
    """The largest or the mean of each window of each channel."""

    name: str
    kind: str  # "max" or "mean"
    window: ConvWindow | None  # None: all places of a channel
    dimensions: int
    count_padding: bool = True  # a mean divides by the places of the window, padding too
    activation: str = "linear"
    alpha: float = 0.0
    channels: int = 0  # 0 until it is sized
    size: tuple[int, int] | None = None

    def sized(self, shape: Shape) -> tuple[Pool, Shape]:
        layer = dataclasses.replace(self, size=self.size_of(shape), channels=shape[0])
        return layer, (shape[0], *layer.out_size[2 - self.dimensions :])

    def forward(self, x: np.ndarray) -> np.ndarray:
        (height, width), window = self.known_size, self.known_window
        images = torch.from_numpy(np.ascontiguousarray(x)).view(-1, self.channels, height, width)
        if self.kind == "max":
            y = F.max_pool2d(images, window.kernel, window.stride, window.before, window.dilation)
        else:
            y = F.avg_pool2d(images, window.kernel, window.stride, window.before, False, self.count_padding)
        return self.activate(y.reshape(len(x), -1).numpy())


Step = Layer | Conv | Pool


@dataclass(frozen=True)
class Network:
    """Layers one after another."""

    layers: tuple[Step, ...]
    shape: Shape | None = None  # of one input, where it is known; of linear layers it is what the first one takes
    flat: bool = False  # inputs come flat, though the first layer sees them in another shape

    @property
    def sizes(self) -> list[int]:
        """Numbers that go into the first layer and come out of each."""
        shapes = itertools.accumulate(self.layers, lambda shape, layer: layer.sized(shape)[1], initial=self.input_shape)
        return [math.prod(shape) for shape in shapes]

    @property
    def input_shape(self) -> Shape:
        first = self.layers[0]
        return self.shape or (first.known_size if isinstance(first, Conv | Pool) else (first.n_in,))

    @property
    def weighted(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    @property
    def connections(self) -> int:
        return sum(map(len, self.weighted))

    @property
    def possible(self) -> int:
        return sum(layer.n_out * layer.n_in for layer in self.weighted)

    def sized(self, shape: Shape) -> Network:
        """The network for inputs of this shape: every layer knows the size of what it sees."""
        layers, at = [], shape
        for layer in self.layers:
            found, at = layer.sized(at)
            layers.append(found)
        return Network(tuple(layers), shape, self.flat)

    def forward(self, x: Any, dtype: type = np.float32) -> np.ndarray:
        """Outputs [examples, numbers] for inputs [examples, ...], by SciPy: each to the last bit independent of the others.

        Inputs may be a SciPy matrix in CSR format if the first layer is linear; they stay sparse.
        """
        if hasattr(x, "tocsr"):
            first = self.layers[0]
            require(type(first) is Layer, f"layer {first.name!r} must be linear to take sparse inputs")
            y = first.forward(x.tocsr().astype(dtype, copy=False))
            return Network(self.layers[1:]).forward(y, dtype) if len(self.layers) > 1 else y
        y = np.asarray(x, dtype=dtype)
        network = self.sized(y.shape[1:]) if y.ndim > 2 else self
        y = y.reshape(len(y), -1)
        for layer in network.layers:
            y = layer.forward(y)
        return y
