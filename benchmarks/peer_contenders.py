"""The same small MNIST network within about the same number of connections, in each library as its documents say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import wirebound as wb

SIZES = (784, 300, 100, 10)
CONNECTIVITY, BUDGET = 0.01, 2662
LR, L1, NOISE = 0.05, 1e-4, 1e-6  # the paper's, for those that have such settings
TEMPERATURE = LR * NOISE**2 / 2


@dataclass
class Contender:
    """One library at work. ``count`` is what it says is active; ``extra`` are tensors that its modules do not register."""

    name: str
    model: nn.Module
    update: Callable[[], object]  # after backward
    optimizer: torch.optim.Optimizer
    count: Callable[[], int]
    extra: list[Tensor] = field(default_factory=list)
    note: str = ""

    def step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.model(x), y).backward()
        self.update()

    def tensors(self) -> Iterator[Tensor]:
        for parameter in self.model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from self.model.buffers()
        yield from self.extra
        for state in self.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def held(self) -> int:
        """Bytes of parameters, gradients, masks, signs, indices and optimiser state after a step, each storage once."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.tensors()}
        return sum(storages.values())


Make = Callable[[], Contender]


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(SIZES):
        layers += [nn.Linear(n_in, n_out, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model if isinstance(module, nn.Linear)]  # type: ignore[attr-defined]


def sparse_start(model: nn.Sequential) -> nn.Sequential:
    """Dense storage with a random hundredth of the weights, for libraries that start from zeros in a dense matrix."""
    with torch.no_grad():
        for layer in linears(model):
            keep = torch.zeros(layer.weight.numel())
            keep[torch.randperm(keep.numel())[: max(1, round(CONNECTIVITY * keep.numel()))]] = 1
            layer.weight *= keep.view_as(layer.weight)
    return model


def optimizer_of(kind: str, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR) if kind == "sgd" else torch.optim.Adam(parameters, lr=1e-3)


def dense(kind: str) -> Contender:
    model = plain()
    optimizer = optimizer_of(kind, model.parameters())
    return Contender("torch, dense", model, optimizer.step, optimizer, lambda: sum(layer.weight.numel() for layer in linears(model)))


def torch_prune(kind: str) -> Contender:
    model = plain()
    for layer in linears(model):
        prune.random_unstructured(layer, "weight", amount=1 - CONNECTIVITY)
    optimizer = optimizer_of(kind, model.parameters())
    count = lambda: sum(int(layer.weight_mask.sum()) for layer in linears(model))  # noqa: E731
    return Contender("torch.nn.utils.prune", model, optimizer.step, optimizer, count, note="fixed connectivity")


class CsrLinear(nn.Module):
    """torch's own CSR tensors, the values a parameter: what one would write without a library."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        csr = weight.to_sparse_csr()
        self.values = nn.Parameter(csr.values().clone())
        self.register_buffer("crow", csr.crow_indices().int())
        self.register_buffer("col", csr.col_indices().int())
        self.shape = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.sparse_csr_tensor(self.crow, self.col, self.values, self.shape, check_invariants=False)
        return torch.sparse.mm(weight, x.t()).t()


def torch_csr(kind: str) -> Contender:
    dense_model = sparse_start(plain())
    model = nn.Sequential(*[CsrLinear(m.weight.detach()) if isinstance(m, nn.Linear) else m for m in dense_model])
    optimizer = optimizer_of(kind, model.parameters())
    count = lambda: sum(p.numel() for p in model.parameters())  # noqa: E731
    return Contender("torch CSR by hand", model, optimizer.step, optimizer, count, note="fixed connectivity")


def deep_rewire(kind: str, name: str = "deep-rewire", temperature: float | None = TEMPERATURE) -> Contender | None:
    if kind != "sgd":
        return None  # its DEEPR is an SGD of its own
    from deep_rewire import DEEPR, convert

    model = plain()
    parameters, _ = convert(model, handle_biases="ignore")
    optimizer = DEEPR(parameters, nc=BUDGET, lr=LR, l1=L1, temp=temperature)
    count = lambda: sum(int((p >= 0).sum()) for p in parameters)  # noqa: E731
    return Contender(name, model, optimizer.step, optimizer, count, note="DEEP R with dense storage")


def deep_rewire_as_it_comes(kind: str) -> Contender | None:
    """At its own default temperature, η/210, noise is a thousand times the pull instead of a hundredth."""
    return deep_rewire(kind, "deep-rewire, its default temperature", None)


def sparsimony(kind: str) -> Contender:
    from sparsimony.distributions.base import UniformDistribution
    from sparsimony.dst.rigl import RigL
    from sparsimony.schedulers.base import CosineDecayScheduler

    model = plain()
    optimizer = optimizer_of(kind, model.parameters())
    sparsifier = RigL(
        CosineDecayScheduler(0.3, t_end=10**6, delta_t=100), UniformDistribution(), optimizer, sparsity=1 - CONNECTIVITY
    )
    names = [f"{i}.weight" for i, module in enumerate(model) if isinstance(module, nn.Linear)]
    sparsifier.prepare(model, [{"tensor_fqn": name} for name in names])

    def update() -> None:
        optimizer.step()
        sparsifier.step()

    count = lambda: sum(int(layer.parametrizations.weight[0].mask.sum()) for layer in linears(model))  # noqa: E731
    return Contender("sparsimony (RigL)", model, update, optimizer, count, note="topology every 100 steps")


def sparseprop(kind: str) -> Contender:
    from sparseprop.modules import SparseLinear

    dense_model = sparse_start(plain())
    model = nn.Sequential(*[SparseLinear.from_dense(m) if isinstance(m, nn.Linear) else m for m in dense_model])
    optimizer = optimizer_of(kind, model.parameters())
    count = lambda: sum(p.numel() for p in model.parameters())  # noqa: E731
    indices = [index for m in model if isinstance(m, SparseLinear) for index in m.W_idx]
    return Contender("SparseProp", model, optimizer.step, optimizer, count, indices, note="fixed connectivity")


def ours(kind: str) -> Contender:
    model = wb.sparsify(plain(), budget=BUDGET, allocation="erdos-renyi", seed=0)
    optimizer = optimizer_of(kind, model.parameters())
    temperature = wb.schedule.noise_amplitude(NOISE)
    rewiring = wb.DeepR(model, optimizer, l1=L1, temperature=temperature, newborns="share")
    return Contender(
        "wirebound (DEEP R)", model, rewiring.step, optimizer, lambda: sum(w.active for w in wb.wirings(model)),
        list(rewiring.adapter.born),
    )  # fmt: skip


ALL: tuple[Callable[[str], Contender | None], ...] = (
    dense, torch_prune, torch_csr, deep_rewire, sparsimony, sparseprop, ours,
)  # fmt: skip
