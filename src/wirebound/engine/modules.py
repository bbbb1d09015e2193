"""Steps by ordinary modules (fused in one native call: ``fused.py``), and where their numbers stopped being finite."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.engine.rows import SparseRows, first_layer, note_columns
from wirebound.engine.window import Skip, StepWindow, join
from wirebound.methods import Method
from wirebound.nn.sparse_layer import SparseLayer, wirings
from wirebound.ops import backend_of, philox
from wirebound.ops.philox import Stream
from wirebound.wiring import WiringError

MOST_SKIPPED = 10  # steps in a row: after that, something else is wrong


class DivergedError(ArithmeticError):
    """Numbers are no longer finite; the message says in which step and layer, and what to try."""

    done: StepWindow | None = None  # the steps before, which were taken and not reported yet


class Batch(NamedTuple):
    """The examples of a step."""

    inputs: tuple[Tensor, ...]  # what the model is called with
    y: Tensor


def never() -> bool:
    return False


class Engine(Protocol):
    """Takes the steps of an epoch and reports them in windows.

    ``start`` is the step of the epoch to begin with, ``window`` counts from the epoch's beginning. An engine may end a
    window early: after any step when ``pause`` says so, or where its own stretches end, without changing a number.
    """

    name: str
    on_nan: str  # "stop" or "skip": what to do about a step that is not finite
    skips: int  # steps left out in a row

    def epoch(
        self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]: ...


@torch.no_grad()
def where_not_finite(model: nn.Module, *inputs: Tensor) -> str:
    """The first place where something is not finite: the inputs, a layer's parameters, a layer's output, the loss."""
    if not all(map(_finite, inputs)):
        return "the inputs"
    if broken := broken_parameter(model):
        return broken
    found: list[str] = []

    def watch(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            found.append(f"the output of layer {name!r}")

    leaves = [(n, m) for n, m in model.named_modules() if isinstance(m, SparseLayer) or not list(m.children())]
    handles = [module.register_forward_hook(partial(watch, name)) for name, module in leaves]
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss"


def broken_parameter(model: nn.Module) -> str:
    """The layer whose parameters are not finite, or nothing."""
    thetas = {id(wiring.theta) for wiring in wirings(model)}
    for wiring in wirings(model):
        bad = torch.nonzero(~torch.isfinite(wiring.theta.detach())).view(-1)
        if bad.numel():
            part = next(i for i, end in enumerate(wiring.bounds[1:]) if int(bad[0]) < end)
            return f"the weights of layer {wiring.layers[part].name!r}"
    for name, parameter in model.named_parameters():
        if id(parameter) not in thetas and not _finite(parameter):
            return f"the numbers of parameter {name!r}"
    return ""


def broken_state(model: nn.Module, method: Method) -> str:
    """The parameter of which the optimiser remembers something that is not finite, or nothing."""
    for name, parameter in model.named_parameters():
        for key, value in method.optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and not _finite(value):
                return f"the optimiser's {key} of {name!r}"
    return ""


def broken_gradient(model: nn.Module) -> str:
    """The parameter whose gradient is not finite, or nothing."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name!r}"
    return ""


def _finite(tensor: Tensor) -> bool:
    tensor = tensor.values() if tensor.layout is torch.sparse_csr else tensor
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def data_order(examples: int, seed: int, epoch: int) -> Tensor:
    """The order of the training examples in an epoch: the same for every machine and torch version."""
    keys = philox.words(seed, Stream.ORDER, epoch, examples, torch.device("cpu"))
    return torch.argsort(keys, stable=True)


def count_active(model: nn.Module, method: Method) -> int:
    """Connections that are active now."""
    return sum(w.active for w in wirings(model)) if wirings(model) else sum(method.layer_active())


def diverged(step: int, loss: float, lr: float, where: str) -> DivergedError:
    advice = f"the weights before this step are kept; try a lower learning rate (now {lr:g}), or on_nan='skip'"
    return DivergedError(f"the loss (={loss}) in step {step} must be a finite number, first at fault: {where}; {advice}")


def skip_step(engine: Engine, model: nn.Module, method: Method, where: str) -> StepWindow:
    """A step that is not taken. It counts all the same: order of data and random numbers go by its number."""
    step = method.steps + 1
    engine.skips += 1
    if engine.skips >= MOST_SKIPPED:
        last = f"the last is step {step}, at fault: {where}; try a lower learning rate"
        raise DivergedError(f"{MOST_SKIPPED} steps in a row had to be skipped, {last}")
    method.steps = step
    active = count_active(model, method)
    return StepWindow(step, step, 0.0, active, active, [0] * len(method.shapes), [], [Skip(step, where)])


class ModuleEngine:
    """The training loop that a user would write, step by step, for ``epoch`` on inputs ``x`` and what belongs to them.

    Of sparse rows each batch is a torch CSR tensor.
    The ``loss`` of outputs and ``y`` is by default cross-entropy, or the mean square for ``y`` of real numbers.
    """

    def __init__(
        self, model: nn.Module, method: Method, x: Tensor | SparseRows | None = None, y: Tensor | None = None,
        loss: Callable[..., Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.method, self.x, self.y = model, method, x, y
        if isinstance(x, SparseRows):
            note_columns(first_layer(model), x.occurring())
        real = y is not None and y.is_floating_point()
        self.loss: Callable[..., Tensor] = loss or (F.mse_loss if real else F.cross_entropy)  # as in the fused path
        self.name = "reference" if backend_of(next(model.parameters())).name == "reference" else "module"
        self.on_nan, self.skips = "stop", 0
        self.after_backward: Callable[[], Any] = never  # between the gradient and the step
        self.after_step: Callable[[], Any] = never

    def epoch(
        self, order: Tensor, lrs: Sequence[float], batch_size: int, window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]:
        """The steps of an epoch in which the examples come in this order; see ``Engine``."""
        return self.steps(map(self.gather, order[start * batch_size :].split(batch_size)), lrs, window, start, pause)

    def gather(self, chosen: Tensor) -> Batch:
        """The examples with these numbers."""
        assert self.x is not None
        assert self.y is not None
        return Batch((self.x[chosen],), self.y[chosen])

    def steps(
        self, batches: Iterable[Batch], lrs: Sequence[float], window: int, start: int = 0, pause: Callable[[], bool] = never
    ) -> Iterator[StepWindow]:
        """A step for each batch of an epoch, from the one with number ``start`` on."""
        self.model.train()
        parts: list[StepWindow] = []
        try:
            for number, batch in enumerate(batches, start):
                parts.append(self._step(batch, lrs[number]))
                if (number + 1) % window == 0 or number == len(lrs) - 1 or pause():
                    yield join(parts)
                    parts = []
        except DivergedError as error:
            error.done = join(parts) if parts else None
            raise

    def _step(self, batch: Batch, lr: float) -> StepWindow:
        """One training step, unless a number in it is not finite."""
        for group in self.method.optimizer.param_groups:
            group["lr"] = lr
        loss, where = self._gradients(batch)
        if where:
            if self.on_nan != "skip":
                raise diverged(self.method.steps + 1, loss, lr, where)
            skipped = skip_step(self, self.model, self.method, where)
            self.method.zero_grad()
            return skipped
        self.after_backward()
        try:
            info = self.method.step()
        except FloatingPointError as error:
            raise DivergedError(f"{error}; at fault: {broken_parameter(self.model)}") from error
        self.method.zero_grad()
        self.after_step()
        if info.budget is not None and info.active != info.budget:
            raise WiringError(f"{info.active} connections are active in step {info.step}, not K (={info.budget})")
        self.skips = 0
        return StepWindow(info.step, info.step, loss, info.active, info.active, list(info.layer_rewired), [loss])

    def _gradients(self, batch: Batch) -> tuple[float, str]:
        """The loss of a batch, whose gradients are left in place, and what is not finite about it, if anything."""
        loss = self.loss(self.model(*batch.inputs), batch.y)
        value = loss.item()
        if not math.isfinite(value):
            return value, where_not_finite(self.model, *batch.inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        return value, broken_gradient(self.model) if self.on_nan == "skip" else ""
