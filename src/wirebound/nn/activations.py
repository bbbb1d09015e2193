"""The functions that may follow a layer, by the names that settings, files and exports have for them."""

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "linear": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU,
    "gelu-tanh": nn.GELU, "silu": nn.SiLU, "relu6": nn.ReLU6, "leaky-relu": nn.LeakyReLU, "elu": nn.ELU,
    "softmax": nn.Softmax, "log-softmax": nn.LogSoftmax,
}
# Those that the kernels compute, by their numbers in csrc/wirebound.h.
KERNEL_NUMBERS: dict[type, int] = {ACTIVATIONS[name]: n for n, name in enumerate(("linear", "relu", "tanh", "sigmoid"))}


def activation_of(module: nn.Module) -> tuple[str, float] | None:
    """The name and alpha (slope of ``leaky-relu``, α of ``elu``) of a module that is an activation, else None."""
    name = next((name for name, kind in ACTIVATIONS.items() if kind is type(module) and name != "linear"), None)
    if name is None or (name in ("softmax", "log-softmax") and module.dim not in (1, -1)):
        return None
    if name == "gelu" and module.approximate != "none":
        return "gelu-tanh", 0.0
    return name, float(getattr(module, {"leaky-relu": "negative_slope", "elu": "alpha"}.get(name, ""), 0.0))
