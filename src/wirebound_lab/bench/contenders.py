"""The work of one layer, with tensors that are the same for all contenders, and the ways to do it: module, dense twin
and masked dense for every kind of layer; dense torch and our bare kernels for linear ones (torch's CSR: ``csr.py``)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.ops.layout import rows_of, signs_of
from wirebound.wiring import Wiring

from .contest import Answer, Contender, WrongAnswerError


def places(wiring: Wiring, part: int = 0) -> tuple[Tensor, Tensor]:
    """Row and column of each connection of one matrix."""
    index = wiring.layer_index(part)
    counts = index.layer_colptr().diff()
    return rows_of(index.layer_packed_rows()), torch.repeat_interleave(torch.arange(counts.numel()), counts)


def at_connections(wiring: Wiring, dense: Sequence[Tensor]) -> Tensor:
    """The entries of dense gradients, one for each matrix of a wiring, that belong to connections."""
    return torch.cat([gradient.flatten(1)[places(wiring, part)] for part, gradient in enumerate(dense)])


def signed(wiring: Wiring, gradient: Tensor) -> Tensor:
    """The gradient of the weights from that of θ."""
    return gradient * signs_of(wiring.packed_rows, gradient.dtype)


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def require_twin(
    model: nn.Module, twin: nn.Module, loss: Callable[[nn.Module], Tensor], gradients: Callable[[], Sequence[Tensor]],
    own: Callable[[], Tensor] | None = None, at: Callable[[Sequence[Tensor]], Tensor] | None = None,
) -> None:  # fmt: skip
    """Raise unless a sparse network has the loss and the gradients of a dense one with the same weights.

    ``gradients`` are the twin's, one for each matrix. ``own`` and ``at`` say for other sparse networks than ours what their
    gradient of the weights is, and where it belongs in the twin's.
    """
    losses = [loss(network) for network in (model, twin)]
    torch.autograd.backward(losses)
    mine, theirs = (value.detach() for value in losses)
    if own is None or at is None:
        (wiring,) = wirings(model)
        found, expected = signed(wiring, gradient_of(wiring.theta)), at_connections(wiring, gradients())
    else:
        found, expected = own(), at(gradients())
    for what, one, other in (("loss", mine, theirs), ("gradient", found, expected)):
        # As a whole: where two numbers of a pooling window nearly agree, rounding decides which one has the gradient.
        if not float((one - other).norm()) <= 1e-3 * float(other.norm()):
            raise WrongAnswerError(f"the {what} differs from that of the dense twin")
    for network in (model, twin):
        network.zero_grad()


def first_output(found: Any) -> Tensor:
    """The output of a layer without the last state that recurrent ones add."""
    output: Tensor = found[0] if isinstance(found, tuple) else found
    return output


class LayerProblem:
    """A sparse layer, its input and the gradient of its output; activations lie as torch has them."""

    def __init__(self, layer: Any, x: Sequence[int], dy: Sequence[int], seed: int = 0) -> None:
        self.layer = layer
        self.wiring: Wiring = layer.wiring
        self.theta = self.wiring.theta.detach()
        generator = torch.Generator().manual_seed(seed)
        self.x, self.dy = torch.randn(*x, generator=generator), torch.randn(*dy, generator=generator)

    def answer(self, y: Tensor, dx: Tensor | None, dtheta: Tensor | None) -> Answer:
        """Output, gradient to the input, and gradient of the weight at each connection, from that of θ."""
        assert dx is not None
        assert dtheta is not None
        return {"y": y, "dx": dx, "dw": signed(self.wiring, dtheta)}

    def dense_answer(self, y: Tensor, dx: Tensor, *dw: Tensor) -> Answer:
        return {"y": y, "dx": dx, "dw": at_connections(self.wiring, dw)}

    def autograd(
        self, name: str, forward: Callable[[Tensor], Any], parameters: Mapping[str, Tensor], dw: Callable[[], Tensor]
    ) -> Contender:
        """Forward and backward through autograd; the gradients of biases are part of the answer."""
        x = self.x.clone().requires_grad_()
        leaves = (x, *parameters.values())

        def run() -> Tensor:
            for leaf in leaves:
                leaf.grad = None
            y = first_output(forward(x))
            torch.autograd.backward(y, self.dy)
            return y

        def answer() -> Answer:
            y = run()
            biases = {key: gradient_of(value) for key, value in parameters.items() if key.startswith("bias")}
            return {"y": y.detach(), "dx": gradient_of(x), "dw": dw(), **biases}

        return Contender(name, run, answer)

    def module(self, name: str = "module") -> Contender:
        theta, parameters = self.wiring.theta, dict(self.layer.named_parameters())
        return self.autograd(name, self.layer, parameters, lambda: signed(self.wiring, gradient_of(theta)))

    def dense_module(self, name: str = "dense module", weights: Sequence[str] = ("weight",)) -> Contender:
        twin: nn.Module = self.layer.dense_twin()
        dense = [twin.get_parameter(weight) for weight in weights]
        parameters = dict(twin.named_parameters())
        return self.autograd(name, twin, parameters, lambda: at_connections(self.wiring, list(map(gradient_of, dense))))

    def masked_module(self, forward: Callable[[Tensor, Tensor], Tensor]) -> Contender:
        """The usual way to emulate sparsity: a dense weight times a mask in every forward pass."""
        weight = self.layer.dense_weight().requires_grad_()
        mask = torch.zeros_like(weight, requires_grad=False)
        mask.flatten(1)[places(self.wiring)] = 1.0
        masked, how = lambda x: forward(x, weight * mask), {"weight": weight}
        return self.autograd("masked module", masked, how, lambda: at_connections(self.wiring, [gradient_of(weight)]))


class LinearWorkload(NamedTuple):
    """A layer and a batch. Work: forward, gradient to the input, gradient at the active positions."""

    n_in: int
    n_out: int
    connectivity: float
    batch: int

    @property
    def label(self) -> str:
        return f"{self.n_in}→{self.n_out}, {100 * self.connectivity:g} %, B {self.batch}"


class LinearProblem(LayerProblem):
    """The tensors of a workload; ``budget`` says K exactly."""

    def __init__(self, workload: LinearWorkload, budget: int | None = None) -> None:
        self.workload = workload
        amount = {"connectivity": workload.connectivity} if budget is None else {"budget": budget}
        layer = SparseLinear(workload.n_in, workload.n_out, bias=False, seed=0, **amount)
        super().__init__(layer, (workload.batch, workload.n_in), (workload.batch, workload.n_out))
        self.budget = self.wiring.budget


def dense_kernel(problem: LinearProblem) -> Contender:
    """Three matrix products into tensors that exist already; no autograd."""
    weight, x, dy = problem.layer.dense_weight(), problem.x, problem.dy
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(weight)

    def run() -> None:
        torch.mm(x, weight.t(), out=y)
        torch.mm(dy, weight, out=dx)
        torch.mm(dy.t(), x, out=dw)

    def answer() -> Answer:
        run()
        return problem.dense_answer(y.clone(), dx.clone(), dw)

    return Contender("dense", run, answer)


def kernel(problem: LinearProblem, name: str = "kernel", threads: int | None = None) -> Contender:
    """The native functions on tensors that exist already: as bare as dense torch with ``out=``."""
    native = library.load()
    assert native is not None
    threads = torch.get_num_threads() if threads is None else threads
    x, dy, theta, wiring = problem.x, problem.dy, problem.theta, problem.wiring
    y, dx, dtheta = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(theta)
    (batch, n_in), n_out = x.shape, dy.shape[1]
    arrays = (wiring.colptr.data_ptr(), wiring.packed_rows.data_ptr(), theta.data_ptr())
    layer = (batch, n_in, n_out, theta.numel(), *arrays)
    x_, y_, dx_, dy_ = ((tensor.data_ptr(), tensor.shape[1]) for tensor in (x, y, dx, dy))
    forward = partial(native.wb_linear_forward_f32, *x_, *y_, *layer, True, None, threads)
    backward = partial(native.wb_linear_backward_f32, *x_, *dy_, *dx_, dtheta.data_ptr(), *layer, threads)

    def run() -> tuple[Tensor, ...]:
        forward()
        backward()
        return x, y, dx, dy, dtheta  # holds them as long as someone may call this: the kernels have addresses only

    def answer() -> Answer:
        run()
        return problem.answer(y.clone(), dx.clone(), dtheta)

    return Contender(name, run, answer)


def through_ops(problem: LinearProblem, name: str = "ops", *, reference: bool = False) -> Contender:
    """``linear_forward`` and ``linear_backward`` of the backend, which allocate their results."""
    x, dy, theta, index = problem.x, problem.dy, problem.theta, problem.wiring.layer_index(0)
    n_out = problem.workload.n_out

    def run() -> tuple[Tensor, Tensor | None, Tensor | None]:
        y = ops.backend_of(theta).linear_forward(x, theta, index, n_out, None)
        return y, *ops.backend_of(theta).linear_backward(x, dy, theta, index, True, True)

    def by_reference() -> tuple[Tensor, Tensor | None, Tensor | None]:
        with ops.use("reference"):
            return run()

    chosen = by_reference if reference else run
    return Contender(name, chosen, lambda: problem.answer(*chosen()))


def bare(problem: LinearProblem) -> Contender:
    """The kernel, or the reference where it was not built."""
    return kernel(problem) if ops.native_available() else through_ops(problem, "kernel", reference=True)
