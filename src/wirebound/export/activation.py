"""The functions that may follow a layer (``nn/activations.py``), for every format: in numpy, in C and as ONNX nodes.

An activation has at most one number, ``alpha``: the slope of ``leaky-relu``, the α of ``elu``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Activation:
    """One function, of each number alone or of all that a layer gives (``OF_ALL``)."""

    numpy: Callable[[np.ndarray, float], np.ndarray]
    c: str  # of ``sum``, with {alpha}; of ``y[i]``, ``most`` (the largest) and ``total`` (of exp(y - most)) for OF_ALL
    # ONNX nodes, each its operator and its inputs: "y" is what comes in, "$3" what node 3 gave, numbers are constants,
    # and alpha is an attribute.
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
    "relu6": Activation(
        lambda y, a: np.clip(y, 0, 6), "sum > 0.0f ? (sum < 6.0f ? sum : 6.0f) : 0.0f", "Clip y 0 6"
    ),
    "leaky-relu": Activation(
        lambda y, a: np.where(y > 0, y, y.dtype.type(a) * y), "sum > 0.0f ? sum : {alpha} * sum", "LeakyRelu y alpha"
    ),
    "elu": Activation(
        lambda y, a: np.where(y > 0, y, y.dtype.type(a) * np.expm1(np.minimum(y, 0))),
        "sum > 0.0f ? sum : {alpha} * expm1f(sum)",
        "Elu y alpha",
    ),
    "softmax": Activation(lambda y, a: np.exp(_log_softmax(y)), "expf(y[i] - most) / total", "Softmax y"),
    "log-softmax": Activation(lambda y, a: _log_softmax(y), "y[i] - most - logf(total)", "LogSoftmax y"),
}
