"""The modules of a model in the order in which its ``forward`` calls them or their functions, found by ``torch.fx``."""

import threading
from typing import Any

from torch import fx, nn

from wirebound.export.layers import NotAChain, require
from wirebound.nn.activations import ACTIVATIONS
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.stack import SparseSequential

Chain = list[tuple[str, nn.Module]]  # (how an error calls it, the module)

# Functions and methods by name: the module, and the names of the arguments after the tensor.
_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_FUNCTIONS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    **{name: (ACTIVATIONS[name], ("inplace",)) for name in ("relu", "relu6", "silu", "tanh", "sigmoid")},
    "gelu": (nn.GELU, ("approximate",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope", "inplace")),
    "elu": (nn.ELU, ("alpha", "inplace")),
    "softmax": (nn.Softmax, ("dim",)), "log_softmax": (nn.LogSoftmax, ("dim",)),
    "flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "avg_pool1d": (nn.AvgPool1d, _MEAN[:-1]), "avg_pool2d": (nn.AvgPool2d, _MEAN),
    "max_pool1d": (nn.MaxPool1d, _POOL), "max_pool2d": (nn.MaxPool2d, _POOL),
    **{f"adaptive_avg_pool{n}d": (getattr(nn, f"AdaptiveAvgPool{n}d"), ("output_size",)) for n in (1, 2)},
}
_WITHOUT_EFFECT = {"inplace": (True, False), "_stacklevel": (3,), "dtype": (None,)}
_NOTHING = ("contiguous", "clone", "detach", "float")
_one_at_a_time = threading.Lock()  # traces undo their patches in the order in which they made them


class _Tracer(fx.Tracer):
    """Tracing patches ``nn.Module`` for the whole process: what other threads do meanwhile is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SparseLayer) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        ours = threading.get_ident() == self.thread
        return super().call_module(m, forward, args, kwargs) if ours else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        ours = threading.get_ident() == self.thread
        return super().getattr(attr, attr_val, parameter_proxy_cache) if ours else attr_val


def trace(model: nn.Module) -> Chain:
    """The chain of modules that the model is in eval mode."""
    sequence = _sequence("", model)
    if sequence is not None:
        return sequence
    with _one_at_a_time:
        modes = {module: module.training for module in model.modules()}
        try:
            model.eval()  # forward() may ask for it
            graph = _Tracer().trace(model)
        except Exception as error:  # forward() runs here, and may fail in any way on what is no tensor
            raise NotAChain(f"torch.fx cannot follow forward() of {type(model).__name__} ({_short(error)})") from error
        finally:
            for module, mode in modes.items():
                module.training = mode
    return _Walk(model, graph).chain()


def _sequence(name: str, module: nn.Module) -> Chain | None:
    """The modules of an ``nn.Sequential``, nested or not, whose order needs no tracing; None for other models."""
    if type(module) in (nn.Sequential, SparseSequential) and not module._forward_hooks and not module._forward_pre_hooks:
        found: Chain = []
        for key, child in module._modules.items():
            inner = None if child is None else _sequence(f"{name}.{key}".lstrip("."), child)
            if inner is None:
                return None
            found += inner
        return found
    if _Tracer().is_leaf_module(module, name):
        _refuse_hooks(name, module)
        return [(_called(name, module), module)]
    return None


class _Walk:
    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.modules, self.graph = dict(model.named_modules()), graph
        self.sizes: set[fx.Node] = set()  # that are numbers: shapes and what is taken from them

    def chain(self) -> Chain:
        inputs = [node for node in self.graph.nodes if node.op == "placeholder" and node.users]
        names = ", ".join(str(node.target) for node in inputs) or "none"
        require(len(inputs) == 1, f"forward() must have one input, it uses {names}", NotAChain)
        at, found = inputs[0], []
        for node in self.graph.nodes:
            if node.op == "placeholder" or self._is_size(node):
                continue
            if node.op == "output":
                rule = f"forward() must return what its last operation ({at.name}) gives, and nothing else"
                require(node.args[0] is at, rule, NotAChain)
                break
            tensors = [other for other in node.all_input_nodes if other not in self.sizes]
            rule = f"must take the result of the one before it ({at.name}) and nothing else"
            why = "branches, sums and parameters used in forward() are no chain"
            follows = tensors == [at] and node.args and node.args[0] is at
            require(follows, f"{self._label(node)} {rule}: {why}", NotAChain)
            found += [(self._label(node), module) for module in self._modules(node)]
            at = node
        return found

    def _label(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return _called(str(node.target), self.modules[str(node.target)])
        return f"operation {_name(node)!r}"

    def _is_size(self, node: fx.Node) -> bool:
        of, read = node.all_input_nodes, _name(node) == "getattr" and node.args[1:] in (("shape",), ("ndim",))
        asked = node.op == "call_method" and _name(node) in ("size", "dim")
        if asked or read or (of and all(other in self.sizes for other in of)):
            self.sizes.add(node)
        return node in self.sizes

    def _modules(self, node: fx.Node) -> list[nn.Module]:
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            _refuse_hooks(str(node.target), module)
            plain = len(node.args) == 1 and not node.kwargs
            require(plain, f"{self._label(node)} must be called with one tensor and nothing else", NotAChain)
            return [module]
        name = _name(node).rstrip("_")  # relu_ is relu
        if name == "mean":
            return self._mean(node)
        ours = node.op == "call_method" or str(getattr(node.target, "__module__", None)).split(".")[0] in ("torch", "None")
        if ours and name in ("view", "reshape", *_NOTHING):
            return [] if name in _NOTHING else [self._reshape(node)]
        if ours and name in ("dropout", "dropout1d", "dropout2d", "alpha_dropout", "feature_alpha_dropout"):
            given = dict(zip(("p", "training"), node.args[1:], strict=False)) | dict(node.kwargs)
            way_out = "pass training=self.training, or use nn.Dropout"
            require(not given.get("training", True), f"operation {name!r} is always on: {way_out}", NotAChain)
            return []
        require(ours and name in _FUNCTIONS, f"{self._label(node)} in forward() is not known here", NotAChain)
        kind, names = _FUNCTIONS[name]
        usual: dict[str, Any] = {"start_dim": 0, "end_dim": -1} if name == "flatten" else {}  # those of the function
        settings = {**usual, **dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
        settings = {key: value for key, value in settings.items() if value not in _WITHOUT_EFFECT.get(key, ())}
        fixed = not any(isinstance(value, fx.Node) for value in settings.values())
        require(fixed, f"the settings of operation {name!r} must be numbers, not computed from the input", NotAChain)
        try:
            return [kind(**settings)]
        except TypeError as error:
            raise NotAChain(f"operation {name!r} is called in a way that is not known here ({_short(error)})") from error

    def _mean(self, node: fx.Node) -> list[nn.Module]:
        given = dict(zip(("dim", "keepdim"), node.args[1:], strict=False)) | dict(node.kwargs)
        dims: Any = given.get("dim", given.get("axis"))
        chosen = set(dims) if isinstance(dims, list | tuple) else {dims}
        known = chosen in ({2, 3}, {-2, -1}, {2}, {-1}) and not set(given) - {"dim", "axis", "keepdim"}
        require(known, f"{self._label(node)} must be that of each channel, as x.mean((2, 3)) is", NotAChain)
        pool = nn.AdaptiveAvgPool2d(1) if len(chosen) == 2 else nn.AdaptiveAvgPool1d(1)
        return [pool] if given.get("keepdim", False) else [pool, nn.Flatten()]

    def _reshape(self, node: fx.Node) -> nn.Module:
        """[batch, -1] and [-1, features] flatten; [batch or -1, channels, height, width] is the reverse."""
        given: Any = node.args[1:]
        sizes = list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
        batch, *rest = sizes or [None]
        if isinstance(batch, fx.Node) or (batch == -1 and -1 not in rest):
            if len(rest) == 1 and type(rest[0]) is int:
                return nn.Flatten()
            if len(rest) > 1 and all(type(size) is int and size > 0 for size in rest):
                return nn.Unflatten(1, tuple(rest))
        raise NotAChain(f"{self._label(node)} must keep the batch and flatten the rest, as view(len(batch), -1) does")


def _refuse_hooks(name: str, module: nn.Module) -> None:
    rule = f"{_called(name, module)} has forward hooks, whose effect cannot be written: remove them first"
    require(not module._forward_hooks and not module._forward_pre_hooks, rule, NotAChain)


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _called(name: str, module: nn.Module) -> str:
    return f"module {name!r} (={type(module).__name__})" if name else f"the model (={type(module).__name__})"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
