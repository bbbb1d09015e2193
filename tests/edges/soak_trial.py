"""One model that is being trained in the soak, and the oracle that looks at it after everything that is done to it."""

import copy
import random

import torch
from soak_models import Made, loss_of, make
from torch import Tensor, nn

import wirebound as wb


class Trial:
    """A model with its own random numbers; ``history`` says what was done to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
        torch.manual_seed(rng.randrange(1 << 30))  # of all threads; only first biases come from it
        self.made: Made = make(rng)
        self.history: list[str] = [self.made.name]
        self.checks = 0

    @property
    def model(self):
        return self.made.model

    @property
    def method(self):
        return self.made.method

    @property
    def wirings(self):
        return wb.wirings(self.model)

    @property
    def dtype(self):
        return self.wirings[0].theta.dtype

    def x(self, batch: int | None = None) -> Tensor:
        """An input of some batch size and some layout in memory."""
        if batch is None:
            batch = max(self.made.fewest, self.rng.choice((1, 2, 5, 16, 40)))
        way = self.rng.randrange(5)
        shape = (batch, *self.made.sample)
        if way == 0:  # every second number of a larger tensor
            return torch.randn((*shape[:-1], 2 * shape[-1]), generator=self.generator, dtype=self.dtype)[..., ::2]
        if way == 1:  # all samples in one place
            return torch.randn((1, *shape[1:]), generator=self.generator, dtype=self.dtype).expand(shape)
        if way == 2:  # in the middle of another tensor
            return torch.randn((batch + 3, *shape[1:]), generator=self.generator, dtype=self.dtype)[2 : 2 + batch]
        if way == 3:  # samples last
            return torch.randn((*shape[1:], batch), generator=self.generator, dtype=self.dtype).movedim(-1, 0)
        return torch.randn(shape, generator=self.generator, dtype=self.dtype)

    def gradients(self, x: Tensor | None = None) -> None:
        self.method.zero_grad()
        loss_of(self.model(self.x() if x is None else x)).backward()

    def step(self) -> wb.StepInfo:
        """One step of training; exactly K afterwards, however it was before."""
        self.gradients()
        info = self.method.step()
        if info.budget is not None:
            assert info.active == info.budget, info
        budget = sum(w.budget for w in self.wirings)
        active = sum(w.active for w in self.wirings)
        assert active == info.active, (active, info)
        assert active <= budget if info.budget is None else active == budget, (active, budget)
        return info

    def check(self) -> None:
        """Every wiring is valid, and forward pass and gradients are those of the dense twin."""
        for wiring in self.wirings:
            wiring.check()
        self.compare()
        self.checks += 1

    def compare(self) -> None:
        """Forward pass and gradients against the dense twin's."""
        x = self.x().detach()
        self.method.zero_grad()
        try:
            self._compare(self.model, x)
        except AssertionError:
            if not x.is_floating_point() or x.dtype is torch.float64:
                raise
            # Large weights and a softmax at its end enlarge what rounding leaves. In double precision it would not show.
            self._compare(copy.deepcopy(self.model).double(), x.double())
        self.method.zero_grad()

    def _compare(self, model: nn.Module, x: Tensor) -> None:
        twin = wb.to_dense(model)
        mine, its = x.clone().requires_grad_(), x.clone().requires_grad_()
        for parameter in twin.parameters():
            parameter.grad = None
            parameter.requires_grad_(True)
        y, expected = model(mine), twin(its)
        close(y, expected, "output")
        loss_of(y).backward()
        loss_of(expected).backward()
        close(mine.grad, its.grad, "gradient of the input")
        self._compare_theta(wb.wirings(model), dict(twin.named_parameters()))

    @staticmethod
    def _compare_theta(wirings: list[wb.Wiring], of_twin: dict[str, Tensor]) -> None:
        for wiring in wirings:
            if not wiring.theta.requires_grad:
                continue
            for part, shape in enumerate(wiring.layers):
                dense = _gradient_of(shape.name, of_twin)
                if dense is None:
                    continue
                index = wiring.layer_index(part)
                rows, columns = _places(index)
                sign = torch.where(index.layer_packed_rows() < 0, -1.0, 1.0).to(dense.dtype)
                expected = sign * dense[rows, columns]
                theta = wiring.theta.detach()[index.start : index.end]
                if wiring.sign_bound:
                    expected = torch.where(theta < 0, 0.0, expected)  # dormant
                close(wiring.theta.grad[index.start : index.end], expected, f"gradient of {shape.name}")


def _places(index) -> tuple[Tensor, Tensor]:
    colptr = index.layer_colptr()
    columns = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    return (index.layer_packed_rows() & 0x7FFFFFFF).long(), columns


def _gradient_of(name: str, of_twin: dict[str, Tensor]) -> Tensor | None:
    """∂E/∂W of the dense twin as the matrix that a wiring sees; None where the two are laid out differently."""
    for key in (name, name + ".weight"):
        if key in of_twin and "up" not in name and "pair" not in name:
            return of_twin[key].grad.flatten(1)
    projections = ("q_proj", "k_proj", "v_proj")
    owner, _, last = name.rpartition(".")
    if last in projections:
        return of_twin[owner + ".in_proj_weight"].grad.chunk(3)[projections.index(last)]
    return None


def close(mine: Tensor, expected: Tensor, what: str) -> None:
    tolerance = 2e-3 if mine.dtype is torch.float32 else 1e-7
    # The error of a sum goes by its largest terms, which the largest sums tell, not by what is left of them.
    least = tolerance / 10 * max(1.0, float(expected.abs().max())) if expected.numel() else 0.0
    torch.testing.assert_close(mine, expected, rtol=tolerance, atol=least, msg=lambda text: f"{what}: {text}")
